"""The head: what the words themselves say, beside the cosine.

Everything is computed from the token ids and the states of the pair at hand, inside the model: so it is the
same in training and in scoring, in each backend, and always of the chunk that is scored. The numbers are
absolute (nothing is normalised over a group), so that scores of different groups can be compared.

Words match when their *stems* do: a table maps each vocabulary id to the smallest id of its stem. How much
a match is worth is its inverse document frequency. Both tables were made for training, the frequencies from
the training texts alone, and ship with the adapter. Saturation of repeated terms and the weighting by length
follow BM25 (Robertson and Zaragoza 2009); the soft matches ColBERT's MaxSim (Khattab and Zaharia 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .packing import QUERY, TEXT

FEATURES = (
    "cosine",
    "covered",  # idf-weighted share of the query's terms that stand in the text
    "saturated",  # the same, each match weighted by how often it stands there (BM25's tf part)
    "bm25",  # log1p of the unnormalised BM25 sum
    "pairs",  # share of neighbouring query terms that stand next to each other in the text
    "triples",
    "numbers",  # share of the query's numbers that stand in the text; 0 without any
    "has_numbers",
    "early",  # share covered by the text's first 24 tokens: titles, names
    "missing",  # the largest idf among terms that do not stand in the text
    "soft",  # idf-weighted mean over query terms of the best cosine with a text token, last layer
    "soft_mean",  # the same, unweighted
    "soft_worst",  # the smallest of them, low-idf terms apart
    "reverse",  # idf-weighted mean over text tokens of the best cosine with a query token
    "query_idf",  # mean idf of the query's terms
    "query_length",  # log1p of the number of terms
    "text_length",
)
EARLY = 24
MATCH_K, MATCH_B, MEAN_LENGTH = 1.2, 0.75, 120.0


class Head(nn.Module):
    """Features of a pair, and the small network that turns them into an addition to the logit."""

    idf: Tensor
    stem: Tensor
    digits: Tensor
    center: Tensor
    spread: Tensor

    def __init__(self, hidden: int, pair_rank: int, vocabulary: int = 30522) -> None:
        super().__init__()
        self.register_buffer("idf", torch.zeros(vocabulary))
        self.register_buffer("stem", torch.zeros(vocabulary, dtype=torch.int32))
        self.register_buffer("digits", torch.zeros(vocabulary))
        self.register_buffer("center", torch.zeros(len(FEATURES)))
        self.register_buffer("spread", torch.ones(len(FEATURES)))
        self.linear = nn.Linear(len(FEATURES), 1)
        self.inner = nn.Linear(len(FEATURES), hidden)
        self.outer = nn.Linear(hidden, 1, bias=False)
        self.pair = nn.Linear(2 * 384, pair_rank)
        self.pair_out = nn.Linear(pair_rank, 1, bias=False)
        for last in (self.linear, self.outer, self.pair_out):  # adds nothing before it is trained
            nn.init.zeros_(last.weight)
        nn.init.zeros_(self.linear.bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Stays in float32 when the model around it is narrowed (`model.to(torch.bfloat16)` comes through
        # here): it costs next to nothing, and bfloat16 has too few digits for frequencies and counts.
        def moved(tensor: Tensor) -> Tensor:
            found = fn(tensor)
            return found if found.dtype == tensor.dtype else tensor.to(found.device)

        return super()._apply(moved, recurse)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Head:
        """The head of an adapter file (names that start with `head.`; stored as narrow as they allow)."""
        own = {name.removeprefix("head."): t for name, t in tensors.items() if name.startswith("head.")}
        head = cls(own["inner.weight"].shape[0], own["pair.weight"].shape[0])
        shapes = head.state_dict()
        head.load_state_dict({name: own[name].to(shapes[name].dtype) for name in shapes})
        return head

    def forward(
        self, input_ids: Tensor, side_ids: Tensor, hidden: Tensor, query: Tensor, text: Tensor
    ) -> Tensor:
        """What to add to the logits, (pairs,); arguments as `features` has them."""
        found = self.features(input_ids, side_ids, hidden, query, text)
        return self.combine(found, query, text)

    def combine(self, features: Tensor, query: Tensor, text: Tensor) -> Tensor:
        """From `features` (pairs, 17) and the pooled sides (pairs, 384) to an addition, (pairs,)."""
        scaled = (features - self.center) / self.spread
        pair = torch.cat([query * text, (query - text).abs()], 1) * 384**0.5
        return (
            self.linear(scaled)
            + self.outer(F.gelu(self.inner(scaled)))
            + self.pair_out(F.gelu(self.pair(pair)))
        )[:, 0]

    def features(
        self, input_ids: Tensor, side_ids: Tensor, hidden: Tensor, query: Tensor, text: Tensor
    ) -> Tensor:
        """The features of each pair, (pairs, len(FEATURES)), before they are centered.

        Args:
            input_ids, side_ids: (pairs, tokens), as `packing.pack` lays them out.
            hidden: the last layer's states, (pairs, tokens, 384).
            query, text: the pooled sides, unit vectors, (pairs, 384).
        """
        stems = self.stem[input_ids]
        weight = self.idf[input_ids]
        word = (weight > 0).to(torch.float32)
        asked = (side_ids == QUERY).to(torch.float32) * word
        given = (side_ids == TEXT).to(torch.float32) * word
        asked_idf, given_idf = asked * weight, given * weight
        total = asked_idf.sum(1).clamp(min=1e-6)
        terms, length = asked.sum(1), given.sum(1)

        same = (stems[:, :, None] == stems[:, None, :]).to(torch.float32)
        matches = same * given[:, None, :]  # (pairs, query tokens, text tokens)
        times = matches.sum(2)
        present = times.clamp(max=1.0)
        shrink = MATCH_K * (1 - MATCH_B + MATCH_B * length / MEAN_LENGTH)
        saturated = times / (times + shrink[:, None])
        # A text's first token stands behind the query, [CLS] included.
        before = (side_ids == QUERY).sum(1, keepdim=True)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)[None, :] - before
        early = (matches * (places <= EARLY).to(torch.float32)[:, None, :]).sum(2).clamp(max=1.0)
        # Two neighbours match where the match above-left on the diagonal does too.
        asked_matches = matches * asked[:, :, None]
        two = asked_matches[:, 1:, 1:] * asked_matches[:, :-1, :-1]
        three = two[:, 1:, 1:] * asked_matches[:, :-2, :-2]
        two_weight = (asked_idf[:, 1:] + asked_idf[:, :-1]) * asked[:, 1:] * asked[:, :-1]
        three_weight = (two_weight[:, 1:] + asked_idf[:, :-2]) * asked[:, :-2] * asked[:, 1:-1] * asked[:, 2:]
        number = asked * self.digits[input_ids]
        numbers = number.sum(1)

        unit = F.normalize(hidden, dim=2)
        similar = torch.matmul(unit, unit.transpose(1, 2))
        best = (similar - 2 * (1 - given[:, None, :])).amax(2)
        best_back = (similar - 2 * (1 - asked[:, None, :])).amax(2)
        telling = asked * (weight > 3).to(torch.float32)
        one = torch.ones_like(total)
        return torch.stack(
            [
                (query * text).sum(1),
                (present * asked_idf).sum(1) / total,
                (saturated * asked_idf).sum(1) / total,
                torch.log1p((saturated * asked_idf).sum(1)),
                (two.amax(2) * two_weight).sum(1) / two_weight.sum(1).clamp(min=1e-6),
                (three.amax(2) * three_weight).sum(1) / three_weight.sum(1).clamp(min=1e-6),
                (present * number).sum(1) / numbers.clamp(min=1),
                torch.minimum(numbers, one),
                (early * asked_idf).sum(1) / total,
                ((1 - present) * asked_idf).amax(1),
                (best * asked_idf).sum(1) / total,
                (best * asked).sum(1) / terms.clamp(min=1),
                torch.where(telling > 0, best, one[:, None]).amin(1),
                (best_back * given_idf).sum(1) / given_idf.sum(1).clamp(min=1e-6),
                asked_idf.sum(1) / terms.clamp(min=1),
                torch.log1p(terms),
                torch.log1p(length),
            ],
            1,
        )
