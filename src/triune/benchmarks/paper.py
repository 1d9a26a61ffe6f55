"""Figures that the paper prints (arXiv 2412.00359), kept in one place so that ours can stand beside them."""

# Table 4, as printed, and the head that each figure turns out to belong to: it follows from the operators exactly.
TABLE_4 = {
    "standard": (109_514_298, "masked-lm"),
    "symmetric": (102_427_194, "masked-lm"),
    "pairwise": (103_017_018, "masked-lm"),
    "shared": (95_337_218, "classification"),
}
TABLE_4_HEADS = ("masked-lm", "classification")

TABLE_4_NOTE = (
    "The paper's Table 4 sets the shared model with a two-label classification head against the other three with a "
    "masked-LM head. Each printed figure is exact for its own head. Like with like, shared attention saves "
    "{like_with_like:.2f} % of the model; the paper's 12.94 % is the mixed comparison ({mixed:.3f} %)."
)
TABLE_3_NOTE = (
    "The paper's 66.53 % fewer parameters in the attention block is 1 − (d² + 3d)/3d² at d = 768, biases and output "
    "projection left out ({without_biases:.3f} %). With biases it is {with_biases:.3f} %, and with the output "
    "projection and its norm, which every operator keeps, {block:.2f} %."
)
