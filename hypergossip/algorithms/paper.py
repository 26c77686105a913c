"""The paper that DBO, DBOGT and DSBO come from."""

CITE = """@article{chen2022decentralized,
  title   = {Decentralized Bilevel Optimization},
  author  = {Chen, Xuxing and Huang, Minhui and Ma, Shiqian},
  journal = {arXiv preprint arXiv:2206.05670},
  year    = {2022}
}"""
