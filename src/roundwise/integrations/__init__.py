"""Other libraries' doors to Roundwise: torch, JAX, and programs that call NumPy and SciPy.

`import roundwise` imports nothing of this; each module needs the library that it is named after.
"""
