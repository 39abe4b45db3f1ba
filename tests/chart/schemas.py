"""JSON schemas for kubeconform, strict, of Kubernetes' OpenAPI document and of CustomResourceDefinitions."""

import json
import tempfile

VERSION = 1  # one more when what is written here changes


def file_name(group, version, kind):
    return "-".join(part for part in (kind.lower(), group.split(".")[0], version) if part) + ".json"


def strict(schema, definitions, within=()):
    """The schema with what it refers to in its place; objects have no field but theirs. What refers to itself may be anything there."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return {} if name in within else strict(definitions[name], definitions, (*within, name))
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    made = {key: schema[key] for key in ("type", "required", "enum", "pattern", "minimum", "maximum") if key in schema}
    if "properties" in schema:
        made["properties"] = {name: strict(field, definitions, within) for name, field in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = strict(schema["additionalProperties"], definitions, within)
    if "items" in schema:
        made["items"] = strict(schema["items"], definitions, within)
    return made


def of_api(swagger):
    definitions = swagger["definitions"]
    for definition in definitions.values():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            if "metadata" in definition.get("properties", {}):  # an object, not its options or a list of it
                yield (kind["group"], kind["version"], kind["kind"]), strict(definition, definitions)


def of_crd(crd, metadata):
    spec = crd["spec"]
    for version in spec["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"], {})
        schema["properties"] |= {"metadata": metadata, "apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        yield (spec["group"], version["name"], spec["names"]["kind"]), schema


def write(folder, swagger, crds):
    """Makes FOLDER, whole or not at all."""
    found = dict(of_api(swagger))
    metadata = strict({"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}, swagger["definitions"])
    for crd in crds:
        found.update(of_crd(crd, metadata))
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        made = folder.parent / made / "schemas"
        made.mkdir()
        for kind, schema in found.items():
            (made / file_name(*kind)).write_text(json.dumps(schema))
        made.rename(folder)
