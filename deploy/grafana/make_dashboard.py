#!/usr/bin/env python3
"""Writes tandem.json, the Grafana dashboard: make_dashboard.py [--check]

Panels are made with Grafana's own schema (grafana-foundation-sdk, in tests/system/requirements.txt), so nothing outside of the schema
can be written. --check compares with the existing file and writes nothing.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
OF = 'model=~"$model"'
DRAFT = f'{OF},draft_model=~"$draft_model"'
# The series of a drafter have the label of the model that the drafter has loaded.
OF_VERIFIERS = f'worker="verifier",{OF}'
OF_DRAFTERS = 'worker="drafter",model=~"$draft_model"'
R = "$__rate_interval"


def rate(name, labels=OF, by=""):
    return f"sum {by}(rate({name}{{{labels}}}[{R}]))"


def target(expression, legend="", **options):
    query = prometheus.Dataquery().expr(expression).legend_format(legend or "__auto")
    if options.get("heatmap"):
        query = query.format(PromQueryFormat.HEATMAP)
    return query


def panel(kind, title, description, width, height, unit, targets):
    made = kind.title(title).description(description).span(width).height(height).datasource(SOURCE).unit(unit)
    for number, one in enumerate(targets):
        made = made.with_target(one.ref_id("ABCDEFGH"[number]))
    return made


def figure(title, description, unit, expression, decimals=None):
    made = panel(stat.Panel(), title, description, 4, 4, unit, [target(expression)])
    made = made.graph_mode(common.BigValueGraphMode.AREA).color_mode(common.BigValueColorMode.NONE)
    made = made.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    return made.decimals(decimals) if decimals is not None else made


def lines(title, description, unit, targets, width=12, stacked=False, most=None):
    made = panel(timeseries.Panel(), title, description, width, 8, unit, targets)
    made = made.line_width(2 if not stacked else 1).fill_opacity(70 if stacked else 0).min(0)
    made = made.show_points(common.VisibilityMode.NEVER)
    made = made.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.NONE))
    made = made.legend(common_builders.VizLegendOptions().show_legend(True).display_mode(common.LegendDisplayMode.LIST)
                       .placement(common.LegendPlacement.BOTTOM))
    if stacked:
        made = made.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    return made.max(most) if most is not None else made


def quantiles(name):
    return [target(f"histogram_quantile({q}, {rate(name + '_bucket', by='by (le) ')})", f"p{round(100 * q)}") for q in (0.5, 0.95, 0.99)]


ACCEPTANCE = f"{rate('tandem_accepted_tokens_total', DRAFT)} / {rate('tandem_draft_tokens_total', DRAFT)}"
MEAN_LENGTH = f"1 + {rate('tandem_accepted_tokens_total', DRAFT)} / {rate('tandem_drafts_total', DRAFT)}"
ALPHA = f"{rate('tandem_accepted_tokens_total', DRAFT)} / {rate('tandem_tested_tokens_total', DRAFT)}"

GAIN = (f"{rate('tandem_drafter_tokens_total', DRAFT, 'by (drafter) ')} / "
        f"{rate('tandem_drafter_plain_tokens_total', DRAFT, 'by (drafter) ')} "
        f"and sum by (drafter) (increase(tandem_drafts_total{{{DRAFT}}}[{R}])) >= 30")


def rows():
    yield "", [
        figure("Tokens per second", "Tokens sent to clients by all routers.", "short", rate("tandem_emitted_tokens_total")),
        figure("Acceptance rate", "Accepted / drafted tokens.", "percentunit", ACCEPTANCE, 0),
        figure("Mean length",
               "1 + accepted tokens / drafts: the number of tokens that a target pass commits if it judges a draft.", "short",
               MEAN_LENGTH, 2),
        figure("Estimated gain", "Expected tokens per second divided by those of plain decoding, mean of the routers.", "short",
               f"avg(tandem_speculation_gain_ratio{{{OF}}})", 2),
        figure("Requests running", "Slots in use at all routers.", "short", f'sum(tandem_slots{{{OF},state="running"}})'),
        figure("Requests waiting", "Requests that wait for a slot or for KV pages.", "short", f"sum(tandem_requests_waiting{{{OF}}})"),
    ]
    yield "Speculation", [
        lines("Acceptance", "The rate depends on the draft length, and α = accepted / tested does not.", "percentunit",
              [target(ACCEPTANCE, "accepted / drafted"), target(ALPHA, "α")], most=1),
        lines("α by position", "Accepted / tested tokens by position in the block, counted from 0.", "percentunit",
              [target(f"{rate('tandem_accepted_tokens_per_position_total', DRAFT, 'by (position) ')} / "
                      f"{rate('tandem_tested_tokens_per_position_total', DRAFT, 'by (position) ')} > 0", "{{position}}")], most=1),
        lines("Share of output by source",
              "Accepted and bonus tokens are the gain of drafts. Plain tokens came without a draft.", "percentunit",
              [target(f"{rate('tandem_emitted_tokens_total', by='by (source) ')} / ignoring (source) group_left "
                      f"{rate('tandem_emitted_tokens_total')}", "{{source}}")], stacked=True, most=1),
        lines("Drafted and accepted tokens per second", "", "short",
              [target(rate("tandem_draft_tokens_total", DRAFT, by="by (drafter) "), "drafted by {{drafter}}"),
               target(rate("tandem_accepted_tokens_total", DRAFT, by="by (drafter) "), "accepted from {{drafter}}")]),
        lines("Gain by drafter",
              "Tokens of the rounds that the drafter drafted, divided by those that plain decoding would have given in the same time, from "
              "measured costs. Drafters with fewer than 30 drafts are not shown.", "short", [target(GAIN, "{{drafter}}")]),
        panel(heatmap.Panel(), "Accepted tokens of a draft", "", 12, 8, "short",
              [target(rate("tandem_accepted_tokens_per_draft_bucket", DRAFT, "by (le) "), "{{le}}", heatmap=True)]),
        lines("Rounds without a draft, by reason", "Rounds of requests that allow drafts. docs/metrics.md explains the reasons.", "short",
              [target(rate("tandem_fallback_rounds_total", by="by (reason) ") + " > 0", "{{reason}}")], stacked=True),
        lines("Mean acceptance of requests", "Mean over the requests that ended.", "percentunit",
              [target(f"{rate('tandem_request_acceptance_ratio_sum', DRAFT)} / "
                      f"{rate('tandem_request_acceptance_ratio_count', DRAFT)}", "mean")], most=1),
        lines("Draft length and gain", "The length that the router chose, and the gain that it expects.", "short",
              [target(f"avg(tandem_draft_length{{{OF}}})", "draft length"), target(f"avg(tandem_speculation_gain_ratio{{{OF}}})", "gain")]),
    ]
    yield "Latency", [
        lines("Time to the first token", "", "s", quantiles("tandem_time_to_first_token_seconds")),
        lines("Time per output token", "", "s", quantiles("tandem_time_per_output_token_seconds")),
        lines("Waiting for a slot", "", "s", quantiles("tandem_queue_wait_seconds")),
        lines("A round, by stage", "Mean seconds. The baseline is the expected time of a plain decoding round.", "s",
              [target(f"{rate('tandem_round_stage_duration_seconds_sum', by='by (stage) ')} / ignoring (stage) group_left "
                      f"{rate('tandem_round_duration_seconds_count')}", "{{stage}}"),
               target(f"avg(tandem_baseline_step_seconds{{{OF}}})", "baseline")], stacked=True),
    ]
    yield "Requests and memory", [
        lines("Requests per second by status", "", "reqps", [target(rate("tandem_requests_total", by="by (status) "), "{{status}}")],
              stacked=True),
        lines("Slots and queue", "", "short", [target(f"sum by (state) (tandem_slots{{{OF}}})", "{{state}}"),
                                               target(f"sum(tandem_requests_waiting{{{OF}}})", "waiting")]),
        lines("KV pages", "Pages of the workers. Cached pages are free and hold a prefix.", "short",
              [target(f"sum by (worker, state) (tandem_kv_pages{{{of}}})", "{{worker}} {{state}}") for of in (OF_VERIFIERS, OF_DRAFTERS)]),
        lines("Prompt tokens found in the prefix cache", "", "percentunit",
              [target(f"{rate('tandem_prefix_cache_hit_tokens_total', by='by (worker) ')} / "
                      f"{rate('tandem_prefix_cache_lookup_tokens_total', by='by (worker) ')}", "{{worker}}")], most=1),
        lines("Preemptions per minute", "", "short", [target(f"60 * {rate('tandem_preemptions_total')}", "requests")]),
        lines("Memory of the processes", "", "bytes",
              [target(f"process_resident_memory_bytes and on (instance) tandem_build_info{{{of}}}", "{{instance}}")
               for of in (f'process!="drafter",{OF}', 'process="drafter",model=~"$draft_model"')]),
    ]
    yield "Workers and transport", [
        lines("Attached", "", "short", [target(f"sum(tandem_verifier_attached{{{OF}}})", "verifier"),
                                        target(f"sum(tandem_drafter_attached{{{OF}}})", "drafter")]),
        lines("Worker pods", "State of the pods at each router: ready (the verifier serves) or lost.", "short",
              [target(f"sum by (instance, state) (tandem_worker_pods{{{OF}}})", "{{instance}} {{state}}")]),
        lines("Routers by transport of the log-prob ring", "", "short",
              [target(f"sum by (transport) (tandem_ring_transport_info{{{OF}}}) > 0", "{{transport}}")], stacked=True),
        lines("Sessions that began or ended", "Number in five minutes, by worker and reason.", "short",
              [target(f"sum by (worker, reason) (increase(tandem_epoch_changes_total{{{OF}}}[5m])) > 0", "{{worker}} {{reason}}")]),
        lines("Log-probs handed over", "Bytes per second that the drafters handed over.", "Bps",
              [target(rate("tandem_ring_bytes_total", 'model=~"$draft_model"', "by (transport) "), "{{transport}}")]),
        lines("Workers computing", "Share of the time in which a worker computes.", "percentunit",
              [target(rate("tandem_worker_compute_seconds_total", of, "by (worker, instance) "), "{{worker}} {{instance}}")
               for of in (OF_VERIFIERS, OF_DRAFTERS)]),
        lines("Audit", "", "short", [target(f"sum by (result) (increase(tandem_audit_replays_total{{{OF}}}[1h]))", "{{result}}"),
                                     target(f"max(tandem_audit_failed{{{OF}}})", "failed")]),
    ]


def variable(name, label, metric):
    return (dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(f"label_values({metric}, {name})")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).multi(True).include_all(True).all_value(".*")
            .current(models.VariableOption(text="All", value="$__all")))


def build():
    made = (dashboard.Dashboard("Tandem").uid("tandem").description("Lossless speculative decoding: acceptance, latency, workers.")
            .tags(["tandem", "llm"]).refresh("10s").time("now-1h", "now").timezone("browser").readonly()
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
            .with_variable(variable("model", "Model", "tandem_slots"))
            .with_variable(variable("draft_model", "Draft model", "tandem_drafts_total")))
    for title, panels in rows():
        if title:
            made = made.with_row(dashboard.Row(title))
        for one in panels:
            made = made.with_panel(one)
    board = made.build()
    for number, one in enumerate(board.panels, start=1):
        one.id_val = number
    return json.dumps(board, cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"


def main():
    path = pathlib.Path(__file__).with_name("tandem.json")
    text = build()
    if "--check" in sys.argv[1:]:
        if path.read_text() != text:
            print(f"{path} is not what make_dashboard.py makes: run it", file=sys.stderr)
            return 1
        return 0
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
