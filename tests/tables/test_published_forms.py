"""Tables in the forms in which people publish them: each is used by `bench`, `search` and `data import` as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epochzero.registry import spaces
from epochzero.tables import AccuracyTable
from tests.command import epochzero

DATA = Path(__file__).parents[2] / "../shared/data"
PAIRS = "('none', 1), ('sep_conv_5x5', 1), ('avg_pool_3x3', 0), ('avg_pool_3x3', 0), ('sep_conv_5x5', 2), "
CELL = f"[{PAIRS}('dil_conv_3x3', 1), ('max_pool_3x3', 2), ('skip_connect', 4)]"
GENOTYPE = f"Genotype(normal={CELL}, normal_concat=[2, 3, 4, 5], reduce={CELL}, reduce_concat=[2, 3, 4, 5])"
LAYERS = ",".join(["3x4"] * 6)
STAGES = "e4k5l2s0/e6k3l2s0/e1k3l3s0/e1k5l2s0/e1k5l2s0/"
CHAIN = "0100;0010;0001;0000"

FORMS: dict[str, tuple[str, str, str, str]] = {
    "mnasnet": (
        "imagenet_top1",
        "3,32,32",
        "arch,imagenet_top1,params,throughput_a100",
        f"{STAGES}e6k3l3s0/e6k3l3s0,62.4,6010824,7038.4\n{STAGES}e1k3l1s1/e1k3l1s1,55.5,1010824,9038.4\n"
        f"{STAGES}e6k3l3s0/e6k3l3s0,62.6,6010824,7040\n{STAGES}e1k3l1s1/e4k3l1s1,57.5,1210824,8038.4\n",
    ),
    "transnas_micro_scene": (
        "class_scene_val_acc",
        "3,32,32",
        "arch_str,class_scene_val_acc",
        "64-41414-1_12_312,52.08\n64-41414-2_21_331,53.8\n64-41414-0_00_000,5.5\n",
    ),
    "darts": (
        "cifar10_val_acc",
        "3,8,8",
        "arch,cifar10_val_acc",
        f'"{GENOTYPE}",81.25\n"{GENOTYPE.replace("5x5", "3x3", 2)}",80.5\nDARTS_V2,90\n',
    ),
    "autoformer_tiny": (
        "cifar100",
        "3,16,16",
        "arch,imagenet_supernet,cifar100",
        "".join(f'"{width}:{LAYERS},{LAYERS}",7{n}.6,6{n}.5\n' for n, width in enumerate((192, 216, 240))),
    ),
    "nb101": (
        "test_acc_108ep",
        "3,8,8",
        "hash,val_acc_108ep,params,adjacency,ops,test_acc_108ep",
        f'a1,.91,9,{CHAIN},"input,conv3x3-bn-relu,maxpool3x3,output",.90\n'
        f'b2,.92,9,{CHAIN},"input,conv3x3-bn-relu,conv1x1-bn-relu,output",.91\n'
        f'c3,.93,9,{CHAIN},"input,conv3x3-bn-relu,conv3x3-bn-relu,output",.92\n',
    ),
}
"""by space: a column, a small input, the header, and made-up rows"""


@pytest.mark.parametrize("space", FORMS)
def test_a_table_is_used_as_it_is(tmp_path: Path, space: str) -> None:
    target, shape, header, body = FORMS[space]
    path, out = tmp_path / "table.csv", tmp_path / "table.ezb"
    path.write_text(f"{header}\n{body}")
    common: list[Any] = ["--table", path, "--space", space, "--proxy", "params"]
    common += ["--input-shape", shape, "--batch-size", 2]
    result = epochzero("bench", *common, "--target", target, "--json").json["results"][0]
    assert (result["n"], result["unscored"]) == (3, 0)
    assert epochzero("data", "import", path, "--space", space, "--out", out, "--json").json["architectures"] == 3
    table = AccuracyTable.read(out)
    best = max(table.archs, key=lambda arch: table.lookup(arch, target))
    assert spaces[space].text(spaces[space].parse(best)) == best
    assert epochzero("search", *common, "--method", "random", "--budget", 2, "--json").json["known"] is None


@pytest.mark.parametrize(
    ("file", "space", "count"),
    [
        ("accelnb_mnasnet", "mnasnet", 2565),
        ("transnas_micro_scene_half", "transnas_micro_scene", 1064),
        ("darts_500", "darts", 500),
        ("autoformer_vitbench_100", "autoformer_tiny", 100),
        ("timm_imagenet_165", "published", 165),
    ],
)
def test_every_row_of_the_real_tables_is_read(file: str, space: str, count: int) -> None:
    path = DATA / f"{file}.csv.gz"
    if not path.is_file():
        pytest.skip(f"the table {path.name} is not here")
    table = AccuracyTable.read(path)
    assert len({spaces[space].text(spaces[space].parse(arch)) for arch in table.archs}) == count
    repeated = ["4 of 2,569 rows repeat an architecture: its numbers are means over its rows."]
    assert table.notes == (repeated if file.startswith("accelnb") else [])
