"""A decoder of the course as the Llama of transformers."""


def llama_weights(decoder):
    """The weights under the names of transformers' Llama."""
    found = {
        "model.embed_tokens.weight": decoder.tokens.weight,
        "model.norm.weight": decoder.norm.weight,
        "lm_head.weight": decoder.head.weight,
    }
    for n, layer in enumerate(decoder.layers):
        size, place = layer.size, f"model.layers.{n}."
        parts = [layer.heads * size, layer.groups * size, layer.groups * size]
        query, key, value = layer.query_key_value.weight.split(parts)
        gate, up = layer.gate_up.weight.chunk(2)
        attention = {"q": query, "k": key, "v": value, "o": layer.mix.weight}
        found |= {
            f"{place}self_attn.{name}_proj.weight": weight for name, weight in attention.items()
        }
        mlp = {"gate": gate, "up": up, "down": layer.down.weight}
        found |= {f"{place}mlp.{name}_proj.weight": weight for name, weight in mlp.items()}
        found[f"{place}input_layernorm.weight"] = layer.attention_norm.weight
        found[f"{place}post_attention_layernorm.weight"] = layer.mlp_norm.weight
    return found
