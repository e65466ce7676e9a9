"""PyKEEN's TransE on UMLS: its scores are distances; calibrated, they say how likely a triple is true."""

import torch
from pykeen.datasets import UMLS
from pykeen.pipeline import pipeline

from linkcal import CalibratedScores, calibrate_scores


def main(epochs: int = 30) -> CalibratedScores:
    umls = UMLS()
    model = pipeline(dataset=umls, model="TransE", epochs=epochs, random_seed=0, device="cpu").model
    training, *held_out = (part.mapped_triples.tolist() for part in umls.factory_dict.values())
    links = {tuple(triple) for part in held_out for triple in part}
    tails = torch.randint(umls.num_entities, (len(links),), generator=torch.Generator().manual_seed(0))
    drawn = {(h, r, t) for (h, r, _), t in zip(sorted(links), tails.tolist(), strict=True)}
    triples = sorted(links) + sorted(drawn - links - set(map(tuple, training)))
    score = model.predict_hrt(torch.tensor(triples))[:, 0]
    query, tail = [f"head {h}, relation {r}" for h, r, _ in triples], [f"tail {t}" for *_, t in triples]
    label = [triple in links for triple in triples]
    found = calibrate_scores({"source": query, "target": tail, "logit": score, "label": label})
    print(found, *(f"{name} {row['ece']:.3f}" for name, row in found.metrics["results"].items()))
    return found


if __name__ == "__main__":
    main()
