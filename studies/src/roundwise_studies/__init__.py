"""The paper's experiments, run again.

Three studies share the steps of `roundwise_studies.protocol`: `simulated` (the paper's
simulated experiments), `released` (what the paper's released code does otherwise than its text) and
`native` (real low precision on this machine). `default_policy` measures the shipped policy.
"""
