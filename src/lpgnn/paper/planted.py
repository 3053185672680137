"""Where private features pay: the experiment ``planted``, in a sentence for each homophily."""

from lpgnn.paper.wording import Family
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Source

_OVER_BLANK, _OVER_LABELS = "MB − Blank", "MB − Labels only"


def planted_sentences(source: Source) -> list[str]:
    """MB against both controls on dense features, over all budgets and K_x; empty without rows."""
    results = source.results("planted")
    if not results.has_rows:
        return []
    table = tables_of(results)["planted"]
    homophilies = dict.fromkeys(entry.values[0] for entry in table.entries["block"].values())
    sentences = [
        "On planted graphs with dense features (`+experiment=planted`, clean labels of the "
        "training nodes), paired over "
        f"ε_x = {', '.join(table.entries['column'])} and the steps K_x:"
    ]
    for homophily in homophilies:
        over_blank, over_labels = (
            Family(
                tuple(
                    number.difference
                    for (block, row, _), number in table.numbers.items()
                    if row == name and table.entries["block"][block].values[0] == homophily
                )
            )
            for name in (_OVER_BLANK, _OVER_LABELS)
        )
        sentences.append(
            f"at homophily {homophily} MB minus blank is {over_blank}, and MB minus labels only "
            f"is {over_labels};"
        )
    return [*sentences[:-1], sentences[-1].removesuffix(";") + "."]
