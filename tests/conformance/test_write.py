"""Create, replace, patch, dry run, the status and scale subresources."""

import json

import pytest

from api_client import CLAIMS, JOBS, JSON_PATCH, MERGE, PODS, STRATEGIC, claim, job, pod


def test_create_fills_in_what_is_the_servers(api, name):
    made = api.post(JOBS, job(name, {"uid": "mine", "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"})).ok(201)["metadata"]
    assert made["generation"] == 1 and made["uid"] != "mine" and made["resourceVersion"] and made["namespace"] == "default"
    assert made["creationTimestamp"] > "2001-01-01T00:00:00Z" and "deletionTimestamp" not in made


def test_a_status_is_not_created(api, name):
    assert "status" not in api.post(JOBS, {**job(name), "status": {"phase": "Running"}}).ok(201)
    assert "status" not in api.get(f"{JOBS}/{name}").ok()


def test_generate_name(api, name):
    thing = job(name)
    thing["metadata"] = {"generateName": f"{name}-"}
    made = [api.post(JOBS, thing).ok(201)["metadata"]["name"] for _ in range(3)]
    assert len(set(made)) == 3 and all(each.startswith(f"{name}-") and len(each) == len(name) + 6 for each in made)


def test_a_name_twice(api, name):
    api.post(JOBS, job(name)).ok(201)
    answer = api.post(JOBS, job(name)).refused(409, "AlreadyExists", f'trainingjobs.trainyard.dev "{name}" already exists')
    assert answer["details"]["name"] == name and answer["details"]["group"] == "trainyard.dev"


@pytest.mark.parametrize("change, code, reason, text", [
    ({"kind": "Pod", "apiVersion": "v1"}, 400, "BadRequest", "v1"),
    ({"kind": None}, 400, "BadRequest", ""),
    ({"metadata": {"name": "x", "namespace": "other"}}, 400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request"),
    ({"metadata": {}}, 422, "Invalid", "name or generateName is required"),
    ({"metadata": {"name": "Big"}}, 422, "Invalid", "metadata.name"),
])
def test_bodies_that_are_no_new_job(api, change, code, reason, text):
    api.post(JOBS, {**job("x"), **change}).refused(code, reason, text)


def test_what_is_new_has_no_version(api):
    answer = api.post(JOBS, job("x", {"resourceVersion": "5"}))
    assert answer.code >= 400 and answer["message"] == "resourceVersion should not be set on objects to be created", "a real one calls it an internal error"


@pytest.mark.parametrize("body", ["{", "[]", "5", "null", ""])
def test_bodies_that_are_no_object(api, body):
    assert api.send("POST", JOBS, body).code == 400


def test_a_body_may_be_yaml(api, name):
    text = f"apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {{name: {name}}}\nspec: {{workers: 1, template: {{spec: {{containers: [{{name: a, image: b}}]}}}}}}\n"
    assert api.send("POST", JOBS, text, type="application/yaml").ok(201)["spec"]["workers"] == 1


def test_dry_run(api, name):
    made = api.post(JOBS, job(name), dryRun="All").ok(201)
    assert made["metadata"]["uid"] and api.get(f"{JOBS}/{name}").code == 404
    before = api.post(JOBS, job(name)).ok(201)
    assert api.patch(f"{JOBS}/{name}", {"spec": {"suspend": True}}, dryRun="All").ok()["spec"]["suspend"] is True
    assert api.put(f"{JOBS}/{name}", {**before, "spec": {**before["spec"], "workers": 5}}, dryRun="All").ok()["metadata"]["generation"] == 2
    api.delete(f"{JOBS}/{name}", dryRun="All").ok()
    api.delete(f"{JOBS}/{name}", {"dryRun": ["All"]}).ok()
    assert api.get(f"{JOBS}/{name}").ok() == before


def test_a_dry_run_checks(api, name):
    api.post(JOBS, job(name, workers=0), dryRun="All").refused(422, "Invalid", "spec.workers")
    api.post(JOBS, job(name)).ok(201)
    api.post(JOBS, job(name), dryRun="All").refused(409, "AlreadyExists")


@pytest.mark.parametrize("method, kind", [("post", "CreateOptions"), ("put", "UpdateOptions"), ("patch", "PatchOptions"), ("delete", "DeleteOptions")])
def test_dry_run_of_another_kind(api, name, method, kind):
    made = api.post(JOBS, job(name)).ok(201)
    path, body = (JOBS, job(name + "-b")) if method == "post" else (f"{JOBS}/{name}", None if method == "delete" else made)
    answer = getattr(api, method)(path, body, dryRun="Some").refused(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"')
    assert answer.fields == ["dryRun"]
    assert api.get(f"{JOBS}/{name}").ok() == made and api.get(f"{JOBS}/{name}-b").code == 404


def test_field_validation_of_another_kind(api, name):
    api.post(JOBS, job(name), fieldValidation="Some").refused(422, "Invalid", 'fieldValidation: Unsupported value: "Some"')


def test_replace(api, name):
    made = api.post(JOBS, job(name)).ok(201)
    made["spec"]["workers"] = 3
    made["metadata"]["labels"] = {"a": "1"}
    now = api.put(f"{JOBS}/{name}", made).ok()
    assert now["spec"]["workers"] == 3 and now["metadata"]["generation"] == 2 and now["metadata"]["labels"] == {"a": "1"}
    assert now["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"] and now["metadata"]["uid"] == made["metadata"]["uid"]
    api.put(f"{JOBS}/{name}", made).refused(409, "Conflict", "the object has been modified; please apply your changes to the latest version and try again")


def test_a_replacement_says_what_it_replaces(api, name):
    api.post(JOBS, job(name)).ok(201)
    answer = api.put(f"{JOBS}/{name}", job(name)).refused(422, "Invalid", "must be specified for an update")
    assert answer.fields == ["metadata.resourceVersion"]
    api.put(f"{JOBS}/{name}", job("other")).refused(400, "BadRequest", f"the name of the object (other) does not match the name on the URL ({name})")
    api.put(f"{JOBS}/nothing", job("nothing")).refused(404, "NotFound")


def test_a_replacement_without_a_field_drops_it(api, name):
    made = api.post(JOBS, job(name, {"labels": {"a": "1"}}, suspend=True)).ok(201)
    del made["spec"]["suspend"], made["metadata"]["labels"]
    now = api.put(f"{JOBS}/{name}", made).ok()
    assert not now["spec"].get("suspend") and "labels" not in now["metadata"]


def test_a_merge_patch(api, name):
    api.post(JOBS, job(name, {"labels": {"a": "1", "b": "2"}})).ok(201)
    now = api.patch(f"{JOBS}/{name}", {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"suspend": True}}).ok()
    assert now["metadata"]["labels"] == {"b": "2", "c": "3"} and now["spec"]["suspend"] is True and now["spec"]["workers"] == 2
    assert now["metadata"]["generation"] == 2


def test_a_json_patch(api, name):
    api.post(JOBS, job(name, {"labels": {"a/b": "1"}})).ok(201)
    now = api.patch(f"{JOBS}/{name}", [{"op": "test", "path": "/spec/workers", "value": 2}, {"op": "replace", "path": "/spec/workers", "value": 4},
                                       {"op": "add", "path": "/metadata/labels/c", "value": "2"}, {"op": "remove", "path": "/metadata/labels/a~1b"}], JSON_PATCH).ok()
    assert now["spec"]["workers"] == 4 and now["metadata"]["labels"] == {"c": "2"}


@pytest.mark.parametrize("patch, type, code, reason", [
    ([{"op": "test", "path": "/spec/workers", "value": 9}], JSON_PATCH, 422, "Invalid"),
    ([{"op": "remove", "path": "/spec/nothing"}], JSON_PATCH, 422, "Invalid"),
    ({"spec": {}}, JSON_PATCH, 400, "BadRequest"),
    (5, MERGE, 400, "BadRequest"),
    ([], MERGE, 400, "BadRequest"),
    ({"spec": {}}, STRATEGIC, 415, "UnsupportedMediaType"),
    ({"spec": {}}, "application/json", 415, "UnsupportedMediaType"),
    ({"spec": {}}, "text/plain", 415, "UnsupportedMediaType"),
    ({"metadata": {"name": "z"}}, MERGE, 400, "BadRequest"),
    ({"metadata": {"uid": "z"}}, MERGE, 422, "Invalid"),
    ({"metadata": {"resourceVersion": "1"}}, MERGE, 409, "Conflict"),
])
def test_patches_that_are_refused(api, name, patch, type, code, reason):
    made = api.post(JOBS, job(name)).ok(201)
    answer = api.patch(f"{JOBS}/{name}", patch, type).refused(code, reason)
    if code == 415:
        assert "application/merge-patch+json" in answer["message"] and "strategic" not in answer["message"]
    assert api.get(f"{JOBS}/{name}").ok() == made


def test_a_patch_of_nothing(api):
    api.patch(f"{JOBS}/nothing", {"spec": {}}).refused(404, "NotFound")


def test_a_patch_that_changes_nothing_makes_no_version(api, name):
    made = api.post(JOBS, job(name)).ok(201)
    assert api.patch(f"{JOBS}/{name}", {"spec": {"workers": 2}}).ok() == made
    assert api.put(f"{JOBS}/{name}", made).ok()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_patch_may_say_what_it_has_seen(api, name):
    made = api.post(JOBS, job(name)).ok(201)["metadata"]
    seen = {"resourceVersion": made["resourceVersion"]}
    api.patch(f"{JOBS}/{name}/status", {"metadata": seen, "status": {"phase": "Running"}}).ok()
    api.patch(f"{JOBS}/{name}/status", {"metadata": seen, "status": {"phase": "Failed"}}).refused(409, "Conflict")
    assert api.get(f"{JOBS}/{name}").ok()["status"]["phase"] == "Running"


def test_a_strategic_merge_patch_knows_a_lists_keys(api, name):
    api.post(PODS, pod(name, containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])).ok(201)
    now = api.patch(f"{PODS}/{name}", {"spec": {"containers": [{"name": "b", "image": "2"}]}}, STRATEGIC).ok()
    assert [(c["name"], c["image"]) for c in now["spec"]["containers"]] == [("a", "1"), ("b", "2")]


def test_a_strategic_merge_patch_of_conditions(api, name):
    api.post(PODS, pod(name)).ok(201)
    for condition in ({"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}, {"type": "Ready", "status": "True"}):
        now = api.patch(f"{PODS}/{name}/status", {"status": {"conditions": [condition]}}, STRATEGIC).ok()
    assert {c["type"]: c["status"] for c in now["status"]["conditions"]} == {"Ready": "True", "Other": "True"}


def test_directives_of_a_strategic_merge_patch(api, name):
    api.post(PODS, pod(name, {"labels": {"a": "1", "b": "2"}, "finalizers": ["example.com/a", "example.com/b"]})).ok(201)
    now = api.patch(f"{PODS}/{name}", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"], "labels": {"$patch": "replace", "c": "3"}}}, STRATEGIC).ok()
    assert now["metadata"]["finalizers"] == ["example.com/b"] and now["metadata"]["labels"] == {"c": "3"}
    now = api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": ["example.com/c"]}}, STRATEGIC).ok()
    assert set(now["metadata"]["finalizers"]) == {"example.com/b", "example.com/c"}, "finalizers are united"
    now = api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": []}}, MERGE).ok()
    assert not now["metadata"].get("finalizers"), "a merge patch replaces"


def test_spec_and_status_have_their_own_doors(api, name):
    api.post(JOBS, job(name)).ok(201)
    spec = api.patch(f"{JOBS}/{name}", {"spec": {"suspend": True}, "status": {"phase": "Running"}}).ok()
    assert spec["metadata"]["generation"] == 2 and "status" not in spec
    status = api.patch(f"{JOBS}/{name}/status", {"spec": {"suspend": False}, "status": {"phase": "Running", "attempt": 1}}).ok()
    assert status["spec"]["suspend"] is True and status["status"] == {"phase": "Running", "attempt": 1} and status["metadata"]["generation"] == 2
    assert api.get(f"{JOBS}/{name}/status").ok() == status
    replaced = api.put(f"{JOBS}/{name}/status", {**status, "status": {"phase": "Failed", "attempt": 1}}).ok()
    assert replaced["status"]["phase"] == "Failed" and replaced["metadata"]["generation"] == 2
    assert api.put(f"{JOBS}/{name}", {**replaced, "status": {}}).ok()["status"]["phase"] == "Failed"


def test_labels_through_the_door_of_the_status(api, name):
    api.post(JOBS, job(name)).ok(201)
    now = api.patch(f"{JOBS}/{name}/status", {"metadata": {"labels": {"a": "1"}}, "status": {"phase": "Running"}}).ok()
    assert "labels" not in now["metadata"] and now["status"]["phase"] == "Running", "a custom resource's are not"


def test_a_status_is_checked(api, name):
    api.post(JOBS, job(name)).ok(201)
    answer = api.patch(f"{JOBS}/{name}/status", {"status": {"attempt": "x"}}).refused(422, "Invalid")
    assert "status.attempt" in answer.fields


def test_a_pods_status(api, name):
    made = api.post(PODS, pod(name)).ok(201)
    assert made["status"]["phase"] == "Pending"
    now = api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}).ok()
    assert now["status"]["phase"] == "Running" and now["status"]["podIP"] == "10.0.0.1"
    assert api.patch(f"{PODS}/{name}", {"status": {"phase": "Failed"}}).ok()["status"]["phase"] == "Running"


def test_a_claim_waits_to_be_bound(api, name):
    made = api.post(CLAIMS, claim(name)).ok(201)
    assert made["status"]["phase"] == "Pending" and made["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_scale(api, name):
    api.post(JOBS, job(name)).ok(201)
    api.patch(f"{JOBS}/{name}/status", {"status": {"workers": {"active": 1}}}).ok()
    scale = api.get(f"{JOBS}/{name}/scale").ok()
    assert (scale["kind"], scale["apiVersion"], scale["spec"], scale["status"]["replicas"]) == ("Scale", "autoscaling/v1", {"replicas": 2}, 1)
    assert scale["metadata"]["name"] == name
    assert api.patch(f"{JOBS}/{name}/scale", {"spec": {"replicas": 3}}).ok()["spec"]["replicas"] == 3
    scale = api.get(f"{JOBS}/{name}/scale").ok()
    scale["spec"]["replicas"] = 4
    assert api.put(f"{JOBS}/{name}/scale", scale).ok()["spec"]["replicas"] == 4
    api.put(f"{JOBS}/{name}/scale", scale).refused(409, "Conflict")
    now = api.get(f"{JOBS}/{name}").ok()
    assert now["spec"]["workers"] == 4 and now["metadata"]["generation"] == 3


def test_scale_obeys_the_schema(api, name):
    api.post(JOBS, job(name)).ok(201)
    api.patch(f"{JOBS}/{name}/scale", {"spec": {"replicas": 100000}}).refused(422, "Invalid", "spec.workers")
    api.get(f"{JOBS}/nothing/scale").refused(404, "NotFound")


def test_a_body_of_megabytes(api, name):
    answer = api.send("POST", JOBS, json.dumps(job(name, {"annotations": {"a": "x" * (300 << 10)}})))
    answer.refused(422, "Invalid", "metadata.annotations")
