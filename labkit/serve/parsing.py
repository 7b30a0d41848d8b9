"""Parse the body of POST /v1/completions into requests for the scheduler.

The fields are those of OpenAI's Python package. null is the same as leaving a field out. Some
fields are accepted only with the one value that this server supports. A wrong body is refused.
"""

import json
import time
from dataclasses import dataclass

from tornado import web

from labkit.serve.scheduler import Request

COUNT = 16  # most tokens of an answer where the client gives no max_tokens
CHOICES = 16  # most texts in the answer to one HTTP request
STOPS = 4  # most texts that end an answer
STOP_BYTES = 64
NEUTRAL = {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "suffix": ""}
ONLY_NULL = ("logprobs",)
TYPES = {"stream": bool, "echo": bool, "model": str, "user": str, "stream_options": dict}
NUMBERS = ("max_tokens", "temperature", "top_p", "seed", "n", "best_of")
FIELDS = {"prompt", "stop", *NUMBERS, *TYPES, *NEUTRAL, *ONLY_NULL}


class Refused(web.HTTPError):
    """Raised to answer an HTTP request with an error.

    status  HTTP status
    reason  a sentence for the body of the answer
    """

    def __init__(self, status, reason):
        super().__init__(status)
        self.in_words = reason


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a client asks for with one HTTP request.

    requests       list of `Request`, one for each text to write: first all texts that continue the
                   first prompt, then those of the second, and so on
    prompt_tokens  number of tokens of all prompts together
    stream         True: send each token as soon as it is written
    with_usage     True: send the numbers of tokens at the end of a stream
    echo           True: each text begins with its prompt
    """

    requests: list
    prompt_tokens: int
    stream: bool
    with_usage: bool
    echo: bool


def parsed(message, server):
    """Return the `Completion` that an HTTP request asks for.

    message  tornado's HTTP request
    server   the `Server`, with its limits
    Raises   Refused where a field is wrong
    """
    fields = _fields(message)
    together = min(CHOICES, server.limits.waiting)
    prompts = _prompts(
        fields.get("prompt"), together, min(server.limits.prompt, server.longest - 1)
    )
    stops = _stops(fields.get("stop", []))

    # The numbers, each with its limits; a text has room for its prompt and its answer.
    room = server.longest - max(map(len, prompts))
    most = min(server.limits.count, room)
    count = whole_number(fields, "max_tokens", min(COUNT, most), (1, most))
    temperature = number(fields, "temperature", 1.0, (0, 10))
    top_p = number(fields, "top_p", 1.0, (0, 1))
    seed = whole_number(fields, "seed", time.time_ns() % 2**31, (-(2**63), 2**63 - 1))
    choices = whole_number(fields, "n", 1, (1, together // len(prompts)))
    whole_number(fields, "best_of", choices, (choices, choices))

    requests = []
    for prompt in prompts:
        for choice in range(choices):
            request = Request(
                prompt=prompt,
                count=count,
                temperature=temperature,
                top_p=top_p,
                seed=(seed + choice) % 2**63,
                stops=stops,
            )
            requests.append(request)
    return Completion(
        requests=requests,
        prompt_tokens=sum(map(len, prompts)),
        stream=fields.get("stream", False),
        with_usage=fields.get("stream_options", {}).get("include_usage") is True,
        echo=fields.get("echo", False),
    )


def _fields(message):
    """Return the fields of a body that are not null: {name: value}.

    message  tornado's HTTP request
    Raises   Refused for a body that is not a JSON object of known fields, for a value of the wrong
             type, and for a value that this server does not support
    """
    if message.headers.get("Content-Type", "").split(";")[0].strip().lower() != "application/json":
        raise Refused(415, "send JSON, with the header Content-Type: application/json")
    try:
        body = json.loads(message.body.decode())
    except (ValueError, RecursionError):
        raise Refused(400, "the body cannot be read as JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "the body has to be an object")
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise Refused(
            400, f"{unknown[0][:60]!r} is no field here; there are {', '.join(sorted(FIELDS))}"
        )
    fields = {name: value for name, value in body.items() if value is not None}

    # Fields that may have only their default, then fields that have to be of one type.
    for name, neutral in NEUTRAL.items():
        if name in fields and (isinstance(fields[name], bool) or fields[name] != neutral):
            raise Refused(400, f"{name} can be nothing but {json.dumps(neutral)} here, or left out")
    for name in ONLY_NULL:
        if name in fields:
            raise Refused(400, f"{name} can be nothing but null here, or left out")
    for name, kind in TYPES.items():
        if name in fields and not isinstance(fields[name], kind):
            words = {bool: "true or false", str: "a string", dict: "an object"}
            raise Refused(400, f"{name} has to be {words[kind]}")
    return fields


def _prompts(prompt, most, longest):
    """Return the prompts of a request as a list of lists of tokens.

    prompt   value of the field "prompt": a text, a list of tokens, or a list of texts or of such
             lists
    most     largest number of prompts
    longest  largest number of tokens of a prompt
    Raises   Refused for another value
    """
    if isinstance(prompt, str) or _is_list_of(prompt, int):
        prompt = [prompt]
    if not (_is_list_of(prompt, str) or _is_list_of(prompt, list)):
        raise Refused(
            400, "prompt has to be a string, a list of tokens, or a list of either, and not empty"
        )
    if len(prompt) > most:
        raise Refused(400, f"there are {len(prompt)} prompts; at most {most} are answered together")
    prompts = [_bytes_of("prompt", text) if isinstance(text, str) else text for text in prompt]
    for tokens in prompts:
        if not 1 <= len(tokens) <= longest:
            raise Refused(
                400,
                f"prompt has {len(tokens)} tokens; 1 to {longest} are allowed, and each is a byte",
            )
        if not _is_list_of(tokens, int) or min(tokens) < 0 or max(tokens) > 255:
            raise Refused(400, "a token is a byte: a whole number from 0 to 255")
    return prompts


def _stops(stop):
    """Return the texts that end an answer, as a list of lists of tokens.

    stop    value of the field "stop": a text or a list of texts
    Raises  Refused for another value, for too many texts, and for a text that is too long
    """
    texts = [stop] if isinstance(stop, str) else stop
    if texts != [] and not _is_list_of(texts, str):
        raise Refused(400, "stop has to be a string or a list of strings")
    stops = [_bytes_of("stop", text) for text in texts]
    if len(stops) > STOPS or not all(1 <= len(tokens) <= STOP_BYTES for tokens in stops):
        raise Refused(400, f"stop can be up to {STOPS} strings, each of 1 to {STOP_BYTES} bytes")
    return stops


def _is_list_of(values, kind):
    """Return whether `values` is a list of at least one value, and all values are of type `kind`.

    A bool does not count as an int.
    """
    if not isinstance(values, list) or not values:
        return False
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


def _bytes_of(name, text):
    """Return a text as a list of tokens, the bytes of its UTF-8.

    name    name of the field, for the message
    Raises  Refused for a text that has no UTF-8
    """
    try:
        return list(text.encode())
    except UnicodeEncodeError:
        raise Refused(
            400, f"{name} holds half a character (a surrogate), which no text has"
        ) from None


def whole_number(fields, name, default, between):
    """Return a field of a body that has to be a whole number, as an int; 2.0 counts as 2.

    The arguments and the errors are those of `number`.
    """
    value = number(fields, name, default, between)
    if value != int(value):
        raise Refused(400, f"{name} has to be a whole number")
    return int(value)


def number(fields, name, default, between):
    """Return a field of a body that has to be a number.

    fields   {name: value}, the body
    name     name of the field
    default  value if the field is left out
    between  (lowest, highest) value that is allowed
    Raises   Refused if the value is no number, or is out of range
    """
    value = fields.get(name, default)
    low, high = between
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        allowed = low if low == high else f"a number from {low} to {high}"
        raise Refused(400, f"{name} has to be {allowed}")
    return value
