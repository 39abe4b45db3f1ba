"""The operator itself."""

from panel import OF_OPERATOR, Dashboard, Panel, Query, Row, Variable, counter, quantile

BY_POD = "{{pod}}"
BY_RESOURCE = "{{resource}} ({{pod}})"


def of_leader(metric):
    """The queue of one that stands by means nothing: nobody works on it."""
    return f"trainyard_{metric}{{{OF_OPERATOR}}} and on (namespace, pod, instance) trainyard_leader == 1"


def of(metric):
    return f"trainyard_{metric}{{{OF_OPERATOR}}}"


NOW = Row("Now", (
    Panel("Leader", "The operator that works; the others stand by. Red: none leads, and no job is looked after.", (Query(f"{of('leader')} == 1 or on() vector(0)", BY_POD, instant=True),),
          "none", kind="stat", width=4, names=True, thresholds=(("green", 1),), base="red"),
    Panel("Replicas", "Operators that are scraped.", (Query(f"count({of('leader')})"),), "none", kind="stat", width=4),
    Panel("Version", "Two of them: an upgrade is under way.", (Query(of("build_info"), "{{version}}", instant=True),), "none", kind="stat", width=4, names=True),
    Panel("Jobs that wait", "For one of the leader's workers.", (Query(of_leader("queue_depth")),), "none", kind="stat", width=4, thresholds=(("orange", 100), ("red", 1000))),
    Panel("Longest wait", "Of the job that has waited longest.", (Query(of_leader("queue_age_seconds")),), "s", kind="stat", width=4, thresholds=(("orange", 10), ("red", 60))),
    Panel("Objects passed over", "That the operator cannot read, every replica the same: each is a defect of it, and in its log.", (Query(f"sum(max by (namespace, trainyard_release, resource) ({of('objects_skipped_total')}))"),), "none", kind="stat", width=4, thresholds=(("red", 1),)),
))

QUEUE = Row("Queue and reconciles", (
    Panel("Jobs that wait", "Of the leader. A start of the operator looks at all jobs once.", (Query(of_leader("queue_depth"), BY_POD),), "none"),
    Panel("How long jobs waited", "From when they were due.", tuple(Query(quantile(q, "trainyard_queue_wait_seconds", "", OF_OPERATOR), f"{100 * q:g} % were faster") for q in (0.5, 0.9, 0.99)), "s"),
    Panel("Jobs that came again", "In a second, after a failure.", (Query(counter("trainyard_queue_retries_total", "pod", OF_OPERATOR), BY_POD),), "ops"),
    Panel("Reconciles", "In a second. A conflict: someone wrote in between, and the job comes again. Errors are in the log.", (Query(counter("trainyard_reconcile_seconds_count", "outcome", OF_OPERATOR), "{{outcome}}"),), "ops", stacked=True),
    Panel("How long a reconcile takes", "With the requests that it makes.", tuple(Query(quantile(q, "trainyard_reconcile_seconds", "", OF_OPERATOR), f"{100 * q:g} % were faster") for q in (0.5, 0.9, 0.99)), "s"),
    Panel("Who leads", "1: works; 0: stands by. A change is a new leader.", (Query(of("leader"), BY_POD),), "none", high=1),
))

REQUESTS = Row("Requests to the API server", (
    Panel("By verb", "In a second.", (Query(counter("trainyard_request_seconds_count", "verb", OF_OPERATOR), "{{verb}}"),), "reqps", stacked=True),
    Panel("By answer", "429: the server is too busy. 409: someone wrote in between. 403: a right is missing. none: no answer.", (Query(counter("trainyard_request_seconds_count", "code", OF_OPERATOR), "{{code}}"),), "reqps", stacked=True),
    Panel("Nine of ten are faster", "By verb; of watches until they began.", (Query(quantile(0.9, "trainyard_request_seconds", "verb", OF_OPERATOR), "{{verb}}"),), "s"),
    Panel("Held back by our own limit", "Requests in a second that waited for the limit of 1,000 a second.", (Query(counter("trainyard_requests_limited_total", "pod", OF_OPERATOR), BY_POD),), "reqps"),
    Panel("Waiting for our own limit", "Seconds in a second, of all requests together.", (Query(counter("trainyard_limiter_wait_seconds_total", "pod", OF_OPERATOR), BY_POD),), "s"),
))

WATCHES = Row("Watches and caches", (
    Panel("Silence", "Since the server last said anything. Bookmarks come about once a minute.", (Query(of("watch_idle_seconds"), BY_RESOURCE),), "s", thresholds=(("red", 600),)),
    Panel("Failing", "For how long a watch has failed; 0: it works. Meanwhile the operator acts on what it knew.", (Query(of("watch_failing_seconds"), BY_RESOURCE),), "s", thresholds=(("red", 60),)),
    Panel("Lists, watches and errors", "In five minutes. A list beside those at the start is a relist; gone: the server had forgotten where we were.",
          tuple(Query(f"sum(increase({of(f'watch_{what}_total')}[5m]))", name) for what, name in (("lists", "lists"), ("starts", "watches"), ("gone", "gone"), ("errors", "errors"))), "none"),
    Panel("Objects in the caches", "Of each operator: those that stand by have them as well.", (Query(of("cached_objects"), BY_RESOURCE),), "none"),
    Panel("Memory of the caches", "What is kept of the objects, estimated.", (Query(of("cached_bytes"), BY_RESOURCE),), "bytes"),
))

DASHBOARD = Dashboard(
    "trainyard-operator", "Trainyard / Operator", "The operator: who leads, its queue, reconciles, requests, watches and caches.",
    (Variable("namespace", "Namespace", "label_values(trainyard_leader, namespace)", everything=True),), (NOW, QUEUE, REQUESTS, WATCHES))
