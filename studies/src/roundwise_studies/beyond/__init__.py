"""What Carson & Chen left for later, measured with their own learner.

    python -m roundwise_studies.beyond               # all parts; resumable, minutes
    python -m roundwise_studies.beyond learners      # one of them; --help lists them

Parts replay the outcomes of ``roundwise reproduce all`` where they can, and keep their own beside
them. Each writes its numbers to ``out/beyond/<part>.json`` and prints its table.
"""
