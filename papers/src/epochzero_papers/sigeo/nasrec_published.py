"""The networks that NASRec found and published, one for each data set and space.

From nasrec/configs/*/ea_*_best_1shot.json of the published code (facebookresearch/NasRec, Apache 2.0). `FEATURES` tells
for how many features each was made.

    space.parse(PUBLISHED["nasrec_small", "criteo"])

Zhang, Cheng, et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023.
arXiv:2207.07187
"""

from __future__ import annotations

FEATURES = {"criteo": (13, 26), "avazu": (1, 23), "kdd": (3, 10)}
"""dense and categorical features; Avazu has no dense ones, and a column of zeros in their place"""

PUBLISHED = {
    ("nasrec_small", "criteo"): "|".join(
        (
            "linear-2d:256@0/linear-3d:48@0/0,0/merge",
            "dot-product:1024@1/linear-3d:48@0,1/1,0/merge,fm",
            "linear-2d:128@0,2/linear-3d:16@0,1,2/0,0/merge",
            "linear-2d:16@2/linear-3d:48@0,2/1,2/fm",
            "dot-product:128@0,2,3,4/linear-3d:32@2,4/2,0/plain",
            "linear-2d:16@0,1,2,5/linear-3d:64@1,2,5/3,5/merge",
            "linear-2d:1024@0,3,5/linear-3d:64@0,1,2,5/0,5/plain",
        )
    ),
    ("nasrec_small", "avazu"): "|".join(
        (
            "dot-product:512@0/linear-3d:64@0/0,0/merge",
            "linear-2d:1024@0,1/linear-3d:48@0/0,0/merge",
            "linear-2d:512@0,2/linear-3d:16@0/1,2/fm",
            "dot-product:768@3/linear-3d:48@0,3/2,0/merge,fm",
            "linear-2d:128@0,2,3/linear-3d:16@0,1/2,3/merge,fm",
            "linear-2d:128@1,3,4/linear-3d:64@0,1,3/0,3/merge",
            "linear-2d:512@5/linear-3d:32@1,2,6/0,1/merge,fm",
        )
    ),
    ("nasrec_small", "kdd"): "|".join(
        (
            "linear-2d:768@0/linear-3d:48@0/0,0/merge,fm",
            "dot-product:128@0,1/linear-3d:64@0,1/0,1/merge",
            "dot-product:32@0,1,2/linear-3d:48@0,1/0,2/merge,fm",
            "linear-2d:256@0,1,2,3/linear-3d:64@0,2,3/1,2/plain",
            "linear-2d:1024@3,4/linear-3d:64@0,1,2,4/0,2/plain",
            "dot-product:768@1,2,5/linear-3d:64@4,5/4,5/plain",
            "dot-product:1024@2,3,4,6/linear-3d:48@0,1,2,4/0,2/merge",
        )
    ),
    ("nasrec_full", "criteo"): "|".join(
        (
            "sigmoid-gating:128@0/transformer:64@0/0,0/merge",
            "dot-product:32@0/linear-3d:64@0/0,1/plain",
            "dot-product:768@1,2/linear-3d:32@0,1,2/1,2/fm",
            "sigmoid-gating:768@0,3/linear-3d:48@0,1,2,3/2,0/merge",
            "linear-2d:16@0,2,3,4/linear-3d:16@0,1,2,3/3,1/fm",
            "linear-2d:768@0,3,4,5/transformer:16@1,4/2,3/merge",
            "linear-2d:128@0,2,3/transformer:48@1,3/6,1/fm",
        )
    ),
    ("nasrec_full", "avazu"): "|".join(
        (
            "dot-product:32@0/transformer:48@0/0,0/merge",
            "dot-product:768@0,1/linear-3d:64@0,1/0,0/merge",
            "linear-2d:512@0/linear-3d:48@0/0,0/merge",
            "sum:768@0,1,2,3/transformer:16@3/1,0/merge,fm",
            "dot-product:768@2,3,4/linear-3d:64@2/0,3/plain",
            "sigmoid-gating:1024@0,1,2,5/linear-3d:64@0,4/0,3/merge",
            "sigmoid-gating:768@1,2,3,5/transformer:16@2,3/0,2/merge",
        )
    ),
    ("nasrec_full", "kdd"): "|".join(
        (
            "dot-product:128@0/transformer:48@0/0,0/merge",
            "sigmoid-gating:768@1/transformer:64@1/0,0/merge",
            "sigmoid-gating:16@1/linear-3d:48@1,2/1,0/plain",
            "sum:64@0,2,3/transformer:16@1/2,2/merge",
            "sum:64@0,1,2,4/linear-3d:48@0,2/0,2/plain",
            "linear-2d:128@3,4/linear-3d:32@0,1,4,5/4,2/fm",
            "sigmoid-gating:768@1,3,5,6/linear-3d:16@1,3,4,5/5,5/merge",
        )
    ),
}
