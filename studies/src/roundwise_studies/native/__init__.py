"""The paper's native study: real low precision, timed, on the processor or on a GPU.

`device` says what the study asks of a device; `processor` and `gpu` answer. The steps of the study
(`gather`, `judging`, `tables`, `study`) are the same on both.
"""
