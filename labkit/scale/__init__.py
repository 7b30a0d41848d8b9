"""Training on many processes and many machines: real processes here, a cost model for the machines that are not here.

`processes` starts workers that can send each other tensors; `data_parallel` computes one gradient with all of them;
`link` fits the time of a message and predicts collectives; `memory` counts the bytes per GPU; `elastic` goes on when a
worker dies.
"""
