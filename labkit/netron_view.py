"""netron on one model, offline: served privately on this machine, in the notebook or a browser tab."""
