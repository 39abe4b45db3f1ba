"""The fields of a pod template as a table, from an API server's /openapi/v3/api/v1.

A line per type: `Container args:[string] env:[EnvVar] imagePullPolicy:=Always|IfNotPresent|Never name!:string ...`;
`!` is required, [T] a list, {T} a map, `=` the allowed values, * anything. operator/api/pod_fields.h reads it.
"""

SCALARS = {"Quantity": "quantity", "IntOrString": "intOrString", "Time": "string", "MicroTime": "string", "FieldsV1": "*"}


def short(ref):
    return ref.rsplit(".", 1)[1]


def type_of(schema, used):
    ref = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", []) if "$ref" in part), None)
    if ref:
        name = short(ref)
        if name in SCALARS:
            return SCALARS[name]
        used.append(name)
        return name
    if "enum" in schema:
        return "=" + "|".join(value for value in schema["enum"] if value)
    kind = schema.get("type")
    if kind == "array":
        return "[" + type_of(schema["items"], used) + "]"
    if kind == "object":
        return "{" + type_of(schema["additionalProperties"], used) + "}" if "additionalProperties" in schema else "*"
    return {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}.get(kind, "*")


def table(openapi, version):
    schemas = {short(name): schema for name, schema in openapi["components"]["schemas"].items() if ".core.v1." in name or ".meta.v1." in name}
    lines, queue, done = [], ["PodTemplateSpec"], set()
    while queue:
        name = queue.pop(0)
        if name in done:
            continue
        done.add(name)
        schema, used = schemas[name], []
        required = set(schema.get("required", []))
        fields = [f"{field}{'!' if field in required else ''}:{type_of(inner, used)}" for field, inner in sorted(schema.get("properties", {}).items())]
        lines.append(" ".join([name, *fields]))
        queue += used
    return "\n".join(sorted(lines)) + "\n"


def source(openapi, version):
    return f"""// Generated from Kubernetes {version} by `tests/cluster/run.sh -k pod_fields --write-pod-fields`; do not edit.
#include "operator/api/pod_fields.h"

namespace trainyard::api {{

// clang-format off
const char kPodFields[] = R"table({table(openapi, version)})table";
// clang-format on

}}  // namespace trainyard::api
"""
