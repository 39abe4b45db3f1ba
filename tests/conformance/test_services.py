"""Services: the addresses that the server gives, what it fills in, and what never changes."""

import ipaddress

import pytest

from api_client import SERVICES, service


def address(api, name):
    return api.get(f"{SERVICES}/{name}").ok()["spec"]["clusterIP"]


def test_a_service_gets_an_address(api, name):
    spec = api.post(SERVICES, service(name)).ok(201)["spec"]
    assert ipaddress.ip_address(spec["clusterIP"]).version == 4 and spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["type"] == "ClusterIP" and spec["sessionAffinity"] == "None" and spec["internalTrafficPolicy"] == "Cluster"
    assert spec["ipFamilies"] == ["IPv4"] and spec["ipFamilyPolicy"] == "SingleStack"
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}] and spec["selector"] == {"a": "1"}
    assert address(api, name) == spec["clusterIP"]
    assert "status" in api.get(f"{SERVICES}/{name}").ok()


def test_no_two_have_the_same(api, name):
    given = [api.post(SERVICES, service(f"{name}-{i}")).ok(201)["spec"]["clusterIP"] for i in range(5)]
    assert len(set(given)) == 5


def test_none_is_an_address_that_is_kept(api, name):
    spec = api.post(SERVICES, service(name, clusterIP="None", ports=None)).ok(201)["spec"]
    assert spec["clusterIP"] == "None" and spec["clusterIPs"] == ["None"] and "ports" not in spec


def test_one_may_ask_for_an_address(api, name):
    free = api.post(SERVICES, service(name)).ok(201)["spec"]["clusterIP"]
    refused = api.post(SERVICES, service(f"{name}-b", clusterIP=free)).refused(422, "Invalid", f'failed to allocate IP {free}: provided IP is already allocated')
    assert refused.fields == ["spec.clusterIPs"]
    api.delete(f"{SERVICES}/{name}").ok()
    assert api.post(SERVICES, service(f"{name}-b", clusterIP=free)).ok(201)["spec"]["clusterIP"] == free


@pytest.mark.parametrize("wrong, text", [
    ("8.8.8.8", "failed to allocate IP 8.8.8.8: the provided network does not match the current range"),
    ("x", "must be a valid IP address"),
])
def test_addresses_that_nobody_gets(api, name, wrong, text):
    assert "spec.clusterIPs" in api.post(SERVICES, service(name, clusterIP=wrong)).refused(422, "Invalid", text).fields[0]
    assert api.get(f"{SERVICES}/{name}").code == 404


def test_an_address_never_changes(api, name):
    given = api.post(SERVICES, service(name)).ok(201)["spec"]["clusterIP"]
    other = str(ipaddress.ip_address(given) + 7)
    refused = api.patch(f"{SERVICES}/{name}", {"spec": {"clusterIP": other}}).refused(422, "Invalid", "may not change once set")
    assert refused.fields == ["spec.clusterIPs[0]"]
    api.patch(f"{SERVICES}/{name}", {"spec": {"clusterIP": "None"}}).refused(422, "Invalid", "may not change once set")
    assert address(api, name) == given
    api.post(SERVICES, service(f"{name}-b", clusterIP="None")).ok(201)
    api.patch(f"{SERVICES}/{name}-b", {"spec": {"clusterIP": other}}).refused(422, "Invalid", "may not change once set")


def test_a_replacement_without_an_address_keeps_it(api, name):
    made = api.post(SERVICES, service(name)).ok(201)
    now = api.put(f"{SERVICES}/{name}", {**service(name, selector={"a": "2"}), "metadata": {"name": name, "resourceVersion": made["metadata"]["resourceVersion"]}}).ok()
    assert now["spec"]["clusterIP"] == made["spec"]["clusterIP"] and now["spec"]["clusterIPs"] == made["spec"]["clusterIPs"] and now["spec"]["selector"] == {"a": "2"}


def test_it_may_stand_for_others(api, name):
    """What an operator does with each attempt: another selector, another port, the same address."""
    made = api.post(SERVICES, service(name, selector={"attempt": "1", "uid": "u"})).ok(201)
    change = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"selector": {"attempt": "2"}, "ports": [{"port": 81, "targetPort": 81}]}}
    now = api.patch(f"{SERVICES}/{name}", change).ok()
    assert now["spec"]["selector"] == {"attempt": "2", "uid": "u"} and now["spec"]["ports"] == [{"port": 81, "protocol": "TCP", "targetPort": 81}]
    assert now["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    api.patch(f"{SERVICES}/{name}", change).refused(409, "Conflict", "the object has been modified")


@pytest.mark.parametrize("change, code, field", [
    ({"ports": None}, "Required value", "spec.ports"),
    ({"ports": []}, "Required value", "spec.ports"),
    ({"ports": [{"port": 0}]}, "must be between 1 and 65535, inclusive", "spec.ports[0].port"),
    ({"ports": [{"port": 1}, {"port": 2}]}, "Required value", "spec.ports[0].name"),
    ({"type": "Odd"}, "Unsupported value", "spec.type"),
    ({"selector": {"a b": "1"}}, "Invalid value", "spec.selector"),
])
def test_what_is_no_service(api, name, change, code, field):
    answer = api.post(SERVICES, service(name, **change)).refused(422, "Invalid", code)
    assert field in answer.fields, answer


@pytest.mark.parametrize("wrong", ["1-digit", "with.dot", "x" * 64])
def test_names_are_names_of_hosts(api, wrong):
    assert api.post(SERVICES, service(wrong)).refused(422, "Invalid", "metadata.name").fields == ["metadata.name"]


def test_a_dry_run_takes_no_address(api, name):
    first = api.post(SERVICES, service(name), dryRun="All").ok(201)
    assert first["spec"]["type"] == "ClusterIP" and api.get(f"{SERVICES}/{name}").code == 404
