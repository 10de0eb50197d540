"""Experiments: the paper's, its released code's, the native study, the default policy's."""
