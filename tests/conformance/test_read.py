"""Get, list, pages, versions, selectors, tables, discovery."""

import pytest

from api_client import CLAIMS, JOBS, LEASES, METADATA, PODS, TABLE, claim, job, names, pod
from servers import wait_until


def make(api, name, count, **labels):
    made = [api.post(JOBS, job(f"{name}-{i}", {"labels": {"case": name, "n": str(i), **labels}})).ok(201) for i in range(count)]
    return [each["metadata"]["name"] for each in made]


def test_get(api, name):
    made = api.post(JOBS, job(name)).ok(201)
    assert api.get(f"{JOBS}/{name}").ok() == made


@pytest.mark.parametrize("path, kind, group", [(JOBS, "trainingjobs", "trainyard.dev"), (PODS, "pods", ""), (CLAIMS, "persistentvolumeclaims", ""), (LEASES, "leases", "coordination.k8s.io")])
def test_get_what_is_not_there(api, path, kind, group):
    answer = api.get(f"{path}/nothing").refused(404, "NotFound", f'{kind}{"." + group if group else ""} "nothing" not found')
    assert answer["details"]["name"] == "nothing" and answer["details"]["kind"] == kind and answer["details"].get("group", "") == group


@pytest.mark.parametrize("path", ["/api/v1/nonsense", "/api/v1/namespaces/default/nonsense", "/api/v1/namespaces/default/nonsense/x"])
def test_a_path_of_no_resource_has_details_too(api, path):
    assert api.get(path).refused(404, "NotFound", "could not find the requested resource")["details"] == {}


def test_a_subresource_that_is_none(api, name):
    api.post(JOBS, job(name)).ok(201)
    assert api.get(f"{JOBS}/{name}/nonsense").code == 404


def test_list(api, name):
    made = make(api, name, 3)
    for path in (JOBS, "/apis/trainyard.dev/v1alpha1/trainingjobs"):
        answer = api.get(path, labelSelector=f"case={name}").ok()
        assert (answer["kind"], answer["apiVersion"]) == ("TrainingJobList", "trainyard.dev/v1alpha1")
        assert names(answer["items"]) == made, "by name"
        assert int(answer["metadata"]["resourceVersion"]) >= max(int(item["metadata"]["resourceVersion"]) for item in answer["items"])
        assert not answer["metadata"].get("continue")


def test_list_of_nothing(api):
    answer = api.get(JOBS, labelSelector="case=nobodys").ok()
    assert answer["items"] == [] and int(answer["metadata"]["resourceVersion"]) > 0


def pages(api, path, limit, **query):
    token, found, versions = None, [], set()
    while True:
        page = api.get(path, limit=limit, **{"continue": token}, **query).ok()
        assert len(page["items"]) <= limit
        found += names(page["items"])
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue")
        if not token:
            return found, versions


@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_pages(api, name, limit):
    made = make(api, name, 5)
    found, versions = pages(api, JOBS, limit, labelSelector=f"case={name}")
    assert found == made and len(versions) == 1, "one snapshot"


def test_pages_are_one_snapshot_whatever_happens(api, name):
    made = make(api, name, 4)
    first = api.get(JOBS, limit=2, labelSelector=f"case={name}").ok()
    api.post(JOBS, job(f"{name}-25", {"labels": {"case": name}})).ok(201)
    api.delete(f"{JOBS}/{made[3]}").ok()
    api.patch(f"{JOBS}/{made[2]}", {"metadata": {"labels": {"new": "1"}}}).ok()
    second = api.get(JOBS, limit=5, labelSelector=f"case={name}", **{"continue": first["metadata"]["continue"]}).ok()
    assert names(first["items"] + second["items"]) == made
    assert "new" not in second["items"][0]["metadata"]["labels"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_the_rest_is_counted(api, name):
    make(api, name, 3)
    total = len(api.get(JOBS).ok()["items"])
    assert api.get(JOBS, limit=1).ok()["metadata"]["remainingItemCount"] == total - 1
    assert "remainingItemCount" not in api.get(JOBS, limit=1, labelSelector=f"case={name}").ok()["metadata"], "what a selector leaves is not known"


@pytest.mark.parametrize("query, code, reason, text", [
    ({"limit": "x"}, 400, "BadRequest", 'parsing "x": invalid syntax'),
    ({"resourceVersion": "x"}, 400, "BadRequest", "invalid resource version"),
    ({"resourceVersion": "99999999"}, 504, "Timeout", "Too large resource version: 99999999"),
    ({"continue": "!", "limit": "1"}, 400, "BadRequest", "invalid continue token"),
    ({"resourceVersionMatch": "Exact"}, 422, "Invalid", "resourceVersionMatch is forbidden unless resourceVersion is provided"),
    ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422, "Invalid", 'is forbidden for resourceVersion "0"'),
    ({"resourceVersionMatch": "Bad", "resourceVersion": "5"}, 422, "Invalid", 'Unsupported value: "Bad"'),
    ({"sendInitialEvents": "true"}, 422, "Invalid", "sendInitialEvents is forbidden for list"),
])
def test_options_of_a_list_that_are_refused(api, query, code, reason, text):
    api.get(JOBS, **query).refused(code, reason, text)


def test_continue_and_a_version_exclude_each_other(api, name):
    make(api, name, 2)
    token = api.get(JOBS, limit=1, labelSelector=f"case={name}").ok()["metadata"]["continue"]
    api.get(JOBS, limit=1, labelSelector=f"case={name}", resourceVersion="5", **{"continue": token}).refused(400, "BadRequest", "not allowed when using continue")


def test_a_version_that_is_too_large_says_when_to_come_again(api):
    answer = api.get(PODS, resourceVersion="99999999").refused(504, "Timeout")
    assert answer["details"]["retryAfterSeconds"] >= 1 and answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_a_list_from_the_cache(api, name):
    made = make(api, name, 2)
    assert set(names(api.get(JOBS, resourceVersion="0", labelSelector=f"case={name}").ok()["items"])) <= set(made)
    version = api.get(JOBS).ok()["metadata"]["resourceVersion"]
    for match in (None, "NotOlderThan"):
        options = {"resourceVersion": version, "resourceVersionMatch": match, "labelSelector": f"case={name}"}
        answer = wait_until(lambda: (now := api.get(JOBS, **options)).code != 504 and now, 30, "a cache that is as far")  # noqa: B023
        assert names(answer.ok()["items"]) == made


@pytest.mark.parametrize("options", [{"resourceVersionMatch": "Exact"}, {"limit": 500}, {"resourceVersionMatch": "Exact", "limit": 500}], ids=str)
def test_a_list_of_what_there_was(api, name, options):
    """A limit alone asks for that too."""
    version = api.post(JOBS, job(f"{name}-a")).ok(201)["metadata"]["resourceVersion"]
    api.post(JOBS, job(f"{name}-b")).ok(201)
    api.delete(f"{JOBS}/{name}-a").ok()
    then = api.get(JOBS, resourceVersion=version, **options).ok()
    assert f"{name}-a" in names(then["items"]) and f"{name}-b" not in names(then["items"])
    assert then["metadata"]["resourceVersion"] == version


def test_pages_that_are_not_older_move_on(api, name):
    """What whoever comes after a 410 has to ask for, or gets what it has lost again. They come from a cache, which hears of a write a moment after the writer."""
    version = api.post(JOBS, job(f"{name}-a")).ok(201)["metadata"]["resourceVersion"]
    api.post(JOBS, job(f"{name}-b")).ok(201)

    def has_moved_on():
        answer = api.get(JOBS, resourceVersion=version, resourceVersionMatch="NotOlderThan", limit=500)
        if answer.code == 504:  # a cache that is three seconds behind says so
            return False
        now = answer.ok()
        assert f"{name}-a" in names(now["items"]) and int(now["metadata"]["resourceVersion"]) >= int(version)
        return f"{name}-b" in names(now["items"]) and int(now["metadata"]["resourceVersion"]) > int(version)

    wait_until(has_moved_on, 30, "the second object")


@pytest.mark.parametrize("selector, found", [
    ("n=1", "1"), ("n==1", "1"), ("n!=1", "02"), ("n in (0,2)", "02"), ("n in ( 0 , 2 )", "02"), ("n notin (0)", "12"), ("n", "012"), ("!n", ""), ("!other", "012"), ("other", ""), ("other!=x", "012"),
    ("n in ()", ""), ("n>0", "12"), ("n<1", "0"), ("n,n!=0", "12"), ("other notin (x)", "012"), ("other=", ""),
])
def test_label_selectors(api, name, selector, found):
    make(api, name, 3)
    items = api.get(JOBS, labelSelector=f"case={name},{selector}").ok()["items"]
    assert [item["metadata"]["labels"]["n"] for item in items] == list(found)


@pytest.mark.parametrize("selector, text", [
    ("(((", "found '(', expected: !, identifier, or 'end of string'"),
    ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
    ("a in b", "unable to parse requirement: found 'b'"),
    ("a===b", "unable to parse requirement: found '=', expected: identifier"),
    ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ("-a", 'Invalid value: "-a"'),
    ("a=b!", "found '!', expected: ',' or 'end of string'"),
    ("a=-b", "unable to parse requirement"),
    ("a>x", "for 'Gt', 'Lt' operators, the value must be an integer"),
    ("a,", "found '', expected: identifier after ','"),
])
@pytest.mark.parametrize("watch", [None, "true"])
def test_label_selectors_that_are_none(api, selector, text, watch):
    api.get(JOBS, labelSelector=selector, watch=watch, timeoutSeconds=1).refused(400, "BadRequest", text)


def test_field_selectors(api, name):
    make(api, name, 2)
    assert names(api.get(JOBS, fieldSelector=f"metadata.name={name}-1").ok()["items"]) == [f"{name}-1"]
    assert f"{name}-1" not in names(api.get(JOBS, fieldSelector=f"metadata.name!={name}-1,metadata.namespace=default").ok()["items"])
    api.patch(f"{JOBS}/{name}-1/status", {"status": {"phase": f"Phase-{name}"}}).ok()
    assert names(api.get(JOBS, fieldSelector=f"status.phase=Phase-{name}").ok()["items"]) == [f"{name}-1"]
    assert f"{name}-1" in names(api.get(JOBS, fieldSelector="spec.managedBy=").ok()["items"])
    api.post(PODS, pod(f"{name}-p", nodeName="node-7")).ok(201)
    assert names(api.get(PODS, fieldSelector="spec.nodeName=node-7").ok()["items"]) == [f"{name}-p"]
    assert f"{name}-p" in names(api.get(PODS, fieldSelector="status.phase=Pending").ok()["items"])
    assert f"{name}-p" not in names(api.get(PODS, fieldSelector="status.phase!=Pending").ok()["items"])


@pytest.mark.parametrize("path, selector, text", [
    (JOBS, "spec.secret=1", "field label not supported: spec.secret"),
    (JOBS, "spec.workers=1", "field label not supported: spec.workers"),
    (JOBS, "metadata.name", "can't understand 'metadata.name'"),
    (PODS, "spec.secret=1", "field label not supported: spec.secret"),
    (PODS, "type=Normal", "field label not supported: type"),
    (CLAIMS, "status.phase=Bound", '"status.phase" is not a known field selector: only "metadata.name", "metadata.namespace"'),
])
def test_field_selectors_that_are_none(api, path, selector, text):
    api.get(path, fieldSelector=selector).refused(400, "BadRequest", text)


def test_a_table_of_jobs(api, name):
    api.post(JOBS, job(name, {"labels": {"case": name}})).ok(201)
    table = api.get(JOBS, accept=TABLE, labelSelector=f"case={name}").ok()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns[0] == ("Name", 0) and ("Phase", 0) in columns and ("Loss", 1) in columns
    (row,) = table["rows"]
    assert len(row["cells"]) == len(columns) and row["cells"][0] == name
    assert row["object"]["kind"] == "PartialObjectMetadata" and row["object"]["metadata"]["name"] == name
    one = api.get(f"{JOBS}/{name}", accept=TABLE).ok()
    assert [each["cells"] for each in one["rows"]] == [row["cells"]]


def test_metadata_alone(api, name):
    api.post(JOBS, job(name, {"labels": {"case": name}})).ok(201)
    whole = api.get(JOBS, labelSelector=f"case={name}").ok()
    part = api.get(JOBS, accept=METADATA, labelSelector=f"case={name}").ok()
    assert (part["kind"], part["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    (item,) = part["items"]
    assert item.keys() == {"kind", "apiVersion", "metadata"} and item["kind"] == "PartialObjectMetadata", item
    assert item["metadata"] == whole["items"][0]["metadata"]


def test_what_a_job_does_not_say_is_empty_in_a_table(api, name):
    api.post(JOBS, job(name)).ok(201)
    table = api.get(f"{JOBS}/{name}", accept=TABLE).ok()
    cells = dict(zip([column["name"] for column in table["columnDefinitions"]], table["rows"][0]["cells"]))
    assert cells["Phase"] in (None, "") and cells["Loss"] is None and cells["Step"] is None


@pytest.mark.parametrize("path, thing, columns", [(PODS, pod, ["Name", "Ready", "Status", "Restarts", "Age"]),
                                                  (CLAIMS, claim, ["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass"])])
def test_tables_of_other_kinds(api, name, path, thing, columns):
    api.post(path, thing(name)).ok(201)
    table = api.get(f"{path}/{name}", accept=TABLE).ok()
    assert [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0][: len(columns)] == columns
    assert table["rows"][0]["cells"][0] == name


@pytest.mark.parametrize("path, resource, kind, short", [("/apis/trainyard.dev/v1alpha1", "trainingjobs", "TrainingJob", "tj"), ("/api/v1", "pods", "Pod", "po"),
                                                         ("/api/v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc")])
def test_discovery(api, path, resource, kind, short):
    found = {each["name"]: each for each in api.get(path).ok()["resources"]}
    assert found[resource]["kind"] == kind and found[resource]["namespaced"] and short in found[resource]["shortNames"]
    assert {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} <= set(found[resource]["verbs"])
    assert f"{resource}/status" in found


def test_discovery_of_scale(api):
    scale = {each["name"]: each for each in api.get("/apis/trainyard.dev/v1alpha1").ok()["resources"]}["trainingjobs/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


def test_namespaces(api):
    assert "default" in names(api.get("/api/v1/namespaces").ok()["items"])
    assert api.get("/api/v1/namespaces/default").ok()["status"]["phase"] == "Active"
    api.get("/api/v1/namespaces/nothing").refused(404, "NotFound", 'namespaces "nothing" not found')


def test_a_namespace_has_to_exist(api):
    if api.kind == "memory":
        pytest.skip("on one machine a namespace is made by what is put into it: nobody could create one first")
    api.post(JOBS.replace("default", "nothing"), job("x")).refused(404, "NotFound", 'namespaces "nothing" not found')


def test_who_may_do_what(api):
    path, kind = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review = {**kind, "spec": {"resourceAttributes": {"namespace": "default", "verb": "create", "group": "trainyard.dev", "resource": "trainingjobs"}}}
    assert api.post(path, review).ok(201)["status"]["allowed"] is True


def test_it_is_up(api):
    assert api.get("/readyz").ok() == "ok" and "gitVersion" in api.get("/version").ok()
