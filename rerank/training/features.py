"""First stage's data: features of lists under the frozen encoder, kept as `.npz` files.

python -m afterpass.rerank.training.features --data DIR --out DIR [--kinds train stop]
python -m afterpass.rerank.training.features --data DIR --out DIR --kinds test --text-tokens 230

The halves kept for the end are written only where asked for, and read by `evaluate` alone.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from ...core.paths import cache_folder
from ..embedded import prepare
from ..embedded.head import Head
from ..embedded.model import LAYERS, TwoSidedModel, load
from ..embedded.packing import QUERY, TEXT
from . import data, tables
from .encode import JOIN, Encoder, scores, token_ids, tokenizer

QUERY_TOKENS, TEXT_TOKENS = 62, 128
BY_COSINE = 4
"""Negatives of each training list that the bi-encoder chooses from the set's pool."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("AFTERPASS_CE_DATA"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of queries of each set")
    parser.add_argument("--stop-lists", type=int, default=70, help="lists of a half at most")
    parser.add_argument("--kinds", nargs="*", default=["train", "stop"], choices=("train", "stop", "test"))
    parser.add_argument("--sets", nargs="*", default=[], help="only these sets")
    parser.add_argument("--skip", type=int, default=0, help="rounds of queries to leave out at the start")
    parser.add_argument("--mined", type=int, default=16, help="negatives by BM25 of a list at most")
    parser.add_argument("--text-tokens", type=int, default=TEXT_TOKENS, help="read of each text")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = prepare(cache_folder())
    tokens = tokenizer(folder)
    torch.set_num_threads(1)  # the pairs' operations are small, and waiting for a second thread costs more
    model = load(folder, None)
    encoder = Encoder(model, (JOIN, LAYERS))
    (arguments.out / "states").mkdir(parents=True, exist_ok=True)
    tables_file = arguments.out / "tables.pt"
    rng = np.random.default_rng(arguments.seed)
    for kind in arguments.kinds:
        if kind == "train":
            datasets = data.training(
                arguments.data,
                seed=arguments.seed,
                scale=arguments.scale,
                skip=arguments.skip,
                mined=arguments.mined,
                names=arguments.sets,
            )
        else:
            datasets = data.development(arguments.data, kind)
        if model.head is None:
            if tables_file.exists():  # carrying on, perhaps with more queries: the tables stay
                model.head = Head(hidden=32, pair_rank=16)
                model.head.load_state_dict(torch.load(tables_file, weights_only=True))
            else:
                model.head = make_head(datasets, tokens)
                torch.save(model.head.state_dict(), tables_file)
        for dataset in datasets:
            target = arguments.out / f"{kind}-{dataset.name}.npz"
            if target.exists() or (arguments.sets and dataset.name not in arguments.sets):
                continue
            started = time.time()
            if kind != "train" and len(dataset.lists) > arguments.stop_lists:
                chosen = rng.permutation(len(dataset.lists))[: arguments.stop_lists]
                dataset.lists = [dataset.lists[i] for i in sorted(chosen)]
            write(target, dataset, encoder, model, tokens, arguments.text_tokens, mine=kind == "train")
            print(kind, dataset.name, len(dataset.lists), f"{time.time() - started:.0f} s", flush=True)


def make_head(datasets: list[data.Dataset], tokens: Tokenizer) -> Head:
    """A fresh head with its tables, from texts of the training sets."""
    stem = tables.stems(tokens)
    by_set = {
        dataset.name: [e.ids for e in tokens.encode_batch_fast(dataset.texts, add_special_tokens=False)]
        for dataset in datasets
    }
    torch.manual_seed(0)
    head = Head(hidden=32, pair_rank=16)
    head.stem.copy_(torch.from_numpy(stem))
    head.idf.copy_(torch.from_numpy(tables.idf(by_set, stem)))
    head.digits.copy_(torch.from_numpy(tables.digits(tokens)))
    return head


def write(
    target: Path,
    dataset: data.Dataset,
    encoder: Encoder,
    model: TwoSidedModel,
    tokens: Tokenizer,
    most: int,
    *,
    mine: bool,
) -> None:
    """Encode a set, mine by cosine, and write features, vectors, lists and the lower layers' states."""
    started = time.time()
    used = sorted({index for one in dataset.lists for index in one.texts})
    place = {index: row for row, index in enumerate(used)}
    texts_lower, texts = encoder(token_ids(tokens, [dataset.texts[i] for i in used], most), TEXT)
    queries_lower, queries = encoder(token_ids(tokens, [x.query for x in dataset.lists], QUERY_TOKENS), QUERY)
    encoded = time.time()
    text_means, query_means = texts.means(), queries.means()
    lists = [([place[i] for i in one.texts], list(one.gains), list(one.bm25)) for one in dataset.lists]
    if mine:
        similar = query_means @ text_means.T
        for row, (members, gains, _) in enumerate(lists):
            known = set(members)
            best = [
                int(i) for i in np.argsort(-similar[row])[: BY_COSINE + len(members)] if int(i) not in known
            ]
            members.extend(best[:BY_COSINE])
            gains.extend([0.0] * len(best[:BY_COSINE]))
    pairs = [(row, member) for row, (members, _, _) in enumerate(lists) for member in members]
    _, _, features = scores(model, queries, texts, pairs, join=LAYERS)
    assert features is not None
    print(
        f"  encoded {encoded - started:.0f} s, paired {time.time() - encoded:.0f} s, tokens {len(texts.ids)}"
    )
    for name, sides in (("text", texts_lower), ("query", queries_lower)):
        np.savez(
            target.parent / "states" / f"{target.stem}.{name}.npz",
            ids=sides.ids,
            lower=sides.states,
            starts=sides.starts,
        )
    np.savez(
        target,
        features=features.numpy(),
        pairs=np.array(pairs, np.int32),
        gains=np.array([g for _, gains, _ in lists for g in gains], np.float32),
        bm25=np.array([b for _, _, bm25 in lists for b in bm25], np.float32),
        sizes=np.array([len(members) for members, _, _ in lists]),
        ideal=np.array([np.pad(one.ideal[:10], (0, 10 - len(one.ideal[:10]))) for one in dataset.lists]),
        text_means=text_means,
        query_means=query_means,
    )


if __name__ == "__main__":
    main()
