"""The modelled storage of GMRES-IR, by hand."""

from roundwise_studies.native.memory_model import modelled_bytes


def test_dense_by_hand():
    # n = 10, restart 3. All fp64: A and its factors 2 * 100 * 8, five vectors of GMRES, two of the
    # update, two of the residual, 8 bytes each: 1600 + 9 * 10 * 8 = 2320.
    assert modelled_bytes(10, "fp64-fp64-fp64-fp64", 3) == 2320
    # u_f = fp16, u = fp32, u_g = fp32, u_r = fp64: A in fp32 and in fp64 (400 + 800), factors 200;
    # vectors 5 * 40 + 2 * 40 + 2 * 80 = 440.
    assert modelled_bytes(10, "fp16-fp32-fp32-fp64", 3) == 1840
    assert modelled_bytes(10, ("fp16", "fp32", "fp32", "fp64"), 3) == 1840


def test_one_matrix_is_enough_if_update_and_residual_agree():
    two = modelled_bytes(10, "fp32-fp32-fp64-fp64", 3)
    one = modelled_bytes(10, "fp32-fp64-fp64-fp64", 3)
    assert two - one == 10 * 10 * 4 - 2 * 10 * 4  # A in fp32 beside fp64, less two longer vectors


def test_sparse_by_hand():
    # 50 entries of A and 120 of the factors, with 4 bytes of index each, and vectors as before.
    assert modelled_bytes(10, "fp64-fp64-fp64-fp64", 3, (50, 120)) == 170 * 12 + 720
    # A second matrix shares the indices: 50 * (4 + 4) + 50 * 8 + 120 * (4 + 4), and vectors in
    # fp32 but for two: 7 * 40 + 2 * 80.
    assert modelled_bytes(10, "fp32-fp32-fp32-fp64", 3, (50, 120)) == 1760 + 440
