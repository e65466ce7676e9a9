"""`linkcal run`, `linkcal fit` and `linkcal audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linkcal.cli._console import (
    DataRoot,
    Dataset,
    Device,
    Json,
    Model,
    Out,
    Wide,
    log,
    print_results,
    step_progress,
    training_options,
    with_options,
    with_table_format,
)

if TYPE_CHECKING:
    from linkcal.data import BipartiteIds, Graph, LinkSplit, NodeIds
    from linkcal.workflow import RunConfig


_EDGES = "Edge list: .csv, .tsv, .txt, .edges (also .gz, .bz2, .zip), .parquet, .npz, .mtx or .graphml."
_FEATURES = (
    "Node features: .csv or .parquet with the node id in the first column, or .npy or .npz with a row for "
    "each of the nodes 0, 1, ...; default: learned embeddings."
)


_BIPARTITE = (
    "Whether the columns of EDGES name nodes of two types, such as users and items, with ids of their own: "
    "only pairs of both types are then drawn, scored and listed."
)
Directed = Annotated[bool, typer.Option("--directed", help="Treat (u, v) and (v, u) as different links.")]
_WEIGHT = "Column of EDGES with edge weights above 0, for models that read them (gcn, vgae)."
_TIME = "Column of EDGES with times (numbers or ISO dates): the last links are tested, and train nothing."
_BY_TIME = "Test the last links of a data set with edge times (bitcoin-alpha, bitcoin-otc)."
_SYMMETRIC = "Take a directed list that has the reverse of each edge: held-out links keep theirs as edges."
_TARGET_FEATURES = "Features of the target nodes with --bipartite; --features are those of the source nodes."


@with_options("training", training_options)
def run(
    dataset: Dataset,
    model: Model = "vgae",
    *,
    training: dict[str, Any],
    data_root: DataRoot = None,
    out: Out = None,
    device: Device = "auto",
    by_time: Annotated[bool, typer.Option("--by-time", help=_BY_TIME)] = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Train on a data set, fit every calibrator, and report calibration and ranking on held-out links."""
    from linkcal.workflow import load_graph

    preset = training["preset"]
    config = _config(dataset, model, training, by_time=by_time)
    graph = load_graph(config, data_root=data_root)
    kind = "" if config.negatives == "uniform" else f"-{config.negatives}"
    kind += "-by-time" * by_time
    folder = out or Path("runs") / f"{dataset}-{model}-{config.fit_on}{kind}-seed{config.seed}"
    source = {"dataset": dataset, "data_root": None if data_root is None else str(data_root.resolve())}
    run_on_graph(config, graph, folder, device, json, {**source, **preset_source(preset)}, wide=wide)


@with_options("training", training_options)
@with_table_format
def fit(
    edges: Annotated[Path, typer.Argument(help=_EDGES, metavar="EDGES")],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    features: Annotated[Path | None, typer.Option(help=_FEATURES)] = None,
    model: Model = "sage",
    directed: Directed = False,
    symmetric: Annotated[bool, typer.Option("--symmetric", help=_SYMMETRIC)] = False,
    bipartite: Annotated[bool | None, typer.Option(help=_BIPARTITE)] = None,
    target_features: Annotated[Path | None, typer.Option(help=_TARGET_FEATURES)] = None,
    weight: Annotated[str | None, typer.Option(help=_WEIGHT, metavar="COLUMN")] = None,
    time: Annotated[str | None, typer.Option(help=_TIME, metavar="COLUMN")] = None,
    *,
    table: dict[str, Any],
    training: dict[str, Any],
    device: Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace a finished run in the folder.")] = False,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Train on your own graph and fit every calibrator; `linkcal score` then scores any pairs."""
    from linkcal.data import DATASETS, read_edges
    from linkcal.workflow import check_output_folder, file_record

    name, preset = edges.name.split(".")[0], training["preset"]
    # Not the name of a known data set, whose reduced preset settings are not meant for this graph.
    dataset = f"{name}-file" if name in DATASETS else name
    config = _config(dataset, model, training, by_time=time is not None, symmetric=symmetric)
    check_output_folder(out, new=not force)
    named = read_edges(
        edges, features=features, directed=directed, bipartite=bipartite, target_features=target_features,
        weight=weight, time=time, **table,
    )  # fmt: skip
    record = {
        "edges": file_record(edges), "features": None if features is None else file_record(features),
        "columns": [table.pop("source"), table.pop("target")], **table, "directed": directed,
        **({"bipartite": True} if bipartite else {}), **({} if weight is None else {"weight": weight}),
        **({} if time is None else {"time": time}),
        **({} if target_features is None else {"target_features": file_record(target_features)}),
        **preset_source(preset),
    }  # fmt: skip
    run_on_graph(config, named.graph, out, device, json, record, wide=wide, node_ids=named.node_ids)


def _config(dataset: str, model: str, training: dict[str, Any], **flags: Any) -> RunConfig:
    from linkcal.workflow import RunConfig, preset_options

    preset = training["preset"]
    named = {"preset": "default"} if preset is None else preset_options(preset, model)
    return RunConfig(dataset=dataset, model=model, **flags, **{**training, **named})


def preset_source(preset: str | None) -> dict[str, Any]:
    """Path and checksum of a preset file, for ``config.json``; its values are in the configuration."""
    from linkcal.workflow import file_record

    is_file = preset is not None and Path(preset).suffix == ".json"
    return {"preset_file": file_record(str(preset))} if is_file else {}


def run_on_graph(
    config: RunConfig,
    graph: Graph | LinkSplit,
    folder: Path,
    device: str,
    json: bool,
    source: dict[str, Any],
    *,
    wide: bool = False,
    node_ids: NodeIds | BipartiteIds | None = None,
) -> None:
    """Run, write the folder, and print the table (or the JSON) and the paths of the files."""
    from linkcal.models import MODELS
    from linkcal.workflow import check_output_folder, run_experiment, to_json, write_outputs

    check_output_folder(folder)
    reduced = MODELS[config.model].presets[config.preset].reduced.get(config.dataset, {})
    if reduced:
        values = ", ".join(f"{name} {value}" for name, value in reduced.items())
        log(f"{config.model} on {config.dataset}: preset {config.preset} reduced to end in minutes: {values}")
    with step_progress() as progress:
        outcome = run_experiment(config, graph, device=device, node_ids=node_ids, progress=progress)
    log(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in outcome.metrics["counts"].items()))
    paths = write_outputs(outcome, folder, source=source)
    if json:
        typer.echo(to_json(outcome.metrics))
    else:
        print_results(outcome.metrics, wide=wide)
    for name, path in paths.items():
        log(f"{name:>9}: {path}")


_MESSAGE_EDGES = "Message-passing edges, which the model sees when it scores; formats as for `linkcal fit`."
_PART = "Labelled {} pairs: .csv, .tsv, .parquet or .npz with the same columns of nodes."


@with_table_format
def audit(
    edges: Annotated[Path, typer.Argument(help=_MESSAGE_EDGES, metavar="EDGES")],
    train: Annotated[Path | None, typer.Option(help=_PART.format("training"), metavar="PAIRS")] = None,
    val: Annotated[Path | None, typer.Option(help=_PART.format("validation"), metavar="PAIRS")] = None,
    test: Annotated[Path | None, typer.Option(help=_PART.format("test"), metavar="PAIRS")] = None,
    label: Annotated[str, typer.Option(help="Column of 1 (link) and 0 (negative).")] = "label",
    directed: Directed = False,
    bipartite: Annotated[bool | None, typer.Option(help=_BIPARTITE)] = None,
    *,
    table: dict[str, Any],
) -> None:
    """Look for leaks in a split: the exit code is 1 if there is one.

    Held-out links that are message-passing edges, negatives that are, pairs in two parts, twice in one part
    or with both labels, in either direction unless `--directed`; training links that are no edges; pairs of
    one type in a bipartite graph. `linkcal fit` and `linkcal run` make splits without them.
    """
    from linkcal.data import audit_pairs, read_split

    given = {"train": train, "val": val, "test": test}
    named, parts = read_split(
        edges, {name: path for name, path in given.items() if path is not None}, label=label,
        directed=directed, bipartite=bipartite, **table,
    )  # fmt: skip
    found, graph = audit_pairs(named.graph, **parts), named.graph
    alone = graph.num_nodes - graph.edge_index.unique().numel()
    typer.echo(
        f"{graph.num_nodes:,} nodes ({alone:,} without an edge), {graph.num_pairs:,} message-passing edges"
    )
    for name, part in parts.items():
        typer.echo(f"{name}: {part.num_positives:,} links, {part.num_negatives:,} negatives")
    for each in found.findings:
        typer.echo(f"{'error' if each.is_error else 'warning'}: {each.kind}: {each.text}, such as")
        ends = named.node_ids.decode_pairs(list(zip(*each.pairs, strict=True)))
        places = each.places or ("",) * len(each.pairs)
        for u, v, place in zip(*(end.to_pylist() for end in ends), places, strict=True):
            typer.echo(f"    {u}, {v}{place and f' {place}'}")
    leaks = sum(each.is_error for each in found.findings)
    typer.echo(f"{leaks} kinds of leaks." if leaks else "No leak found.")
    if leaks:
        raise typer.Exit(1)
