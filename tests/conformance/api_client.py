"""A plain HTTPS client for one API server: what is asked, and what is answered, nothing in between."""

import dataclasses
import datetime
import http.client
import json
import ssl
import urllib.parse

JOBS = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SERVICES = "/api/v1/namespaces/default/services"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
MERGE, STRATEGIC, JSON_PATCH, APPLY = (f"application/{kind}" for kind in ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml"))
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclasses.dataclass
class Answer:
    code: int
    body: object
    warnings: list

    def __getitem__(self, key):
        return self.body[key]

    @property
    def fields(self):
        """The fields that a refusal is about."""
        return [cause.get("field", "") for cause in self.body.get("details", {}).get("causes", [])]

    def refused(self, code, reason, text=""):
        assert (self.code, self.body.get("reason")) == (code, reason), self
        assert self.body["kind"] == "Status" and self.body["status"] == "Failure" and self.body["code"] == code, self
        assert text in self.body["message"], self
        return self

    def ok(self, code=200):
        assert self.code == code, self
        return self.body


def with_query(path, query):
    pairs = [(key, value) for key, value in query.items() if value is not None]
    return path + ("?" + urllib.parse.urlencode(pairs) if pairs else "")


class Client:
    def __init__(self, host, port, token, ca, kind):
        self.host, self.port, self.token, self.kind = host, port, token, kind
        self.context = ssl.create_default_context(cadata=ca)
        self.connection = None

    def headers(self, content_type, accept):
        return {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": accept}

    def send(self, method, path, body=None, type="application/json", accept="application/json", **query):
        if not self.connection:
            self.connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=60)
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body is not None else None
        try:
            self.connection.request(method, with_query(path, query), data, self.headers(type, accept))
            response = self.connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self.connection = None  # the server has closed it; what was asked may have been done
            raise
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text
        return Answer(response.status, answer, response.headers.get_all("Warning") or [])

    def get(self, path, **query):
        return self.send("GET", path, **query)

    def post(self, path, body, **query):
        return self.send("POST", path, body, **query)

    def put(self, path, body, **query):
        return self.send("PUT", path, body, **query)

    def patch(self, path, body, type=MERGE, **query):
        return self.send("PATCH", path, body, type=type, **query)

    def delete(self, path, body=None, **query):
        return self.send("DELETE", path, body, **query)

    def watch(self, path, seconds=5, until=None, during=None, accept="application/json", **query):
        """The events of a watch; it ends after `seconds`, or when `until(event)`. `during` runs once the stream is open."""
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=60)
        try:
            connection.request("GET", with_query(path, {"watch": "true", "timeoutSeconds": seconds, **query}), headers=self.headers("application/json", accept))
            response = connection.getresponse()
            if response.status != 200:
                return Answer(response.status, json.loads(response.read()), [])
            if during:
                during()
            events = []
            for line in response:
                events.append(json.loads(line))
                if until and until(events[-1]):
                    break
            return events
        finally:
            connection.close()


def names(items):
    return [item["metadata"]["name"] for item in items]


def seconds(text):
    """Of a time of the API, since 1970."""
    return datetime.datetime.fromisoformat(text).timestamp()


def kinds(events):
    """[("ADDED", "name"), ...] without bookmarks."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events if event["type"] != "BOOKMARK"]


def job(name, metadata=None, **spec):
    return {
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"workers": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}, **spec},
    }


def pod(name, metadata=None, **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(metadata or {})}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def claim(name, **spec):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}}


def service(name, **spec):
    """None leaves a field out."""
    spec = {"selector": {"a": "1"}, "ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {key: value for key, value in spec.items() if value is not None}}


def owned_by(owner, block=False):
    return {"ownerReferences": [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}]}
