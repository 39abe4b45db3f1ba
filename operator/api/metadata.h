// Names, labels and annotations as Kubernetes allows them
// (kubernetes.io/docs/concepts/overview/working-with-objects, "names" and "labels").
#ifndef TRAINYARD_OPERATOR_API_METADATA_H_
#define TRAINYARD_OPERATOR_API_METADATA_H_

#include <string>
#include <vector>

#include "operator/api/schema.h"

namespace trainyard::api {

// An RFC 1123 label: what a namespace and a volume are called.
bool IsDnsLabel(const std::string& text);
// Labels with dots between them, at most 253 characters: what most objects are called.
bool IsDnsSubdomain(const std::string& text);

// "team", "example.com/team": a key of a label. What it must be, in words, is the rule.
bool IsLabelKey(const std::string& key);
inline constexpr char kLabelKeyRule[] =
    "a name of letters, digits, -, _ and . (63 at most), perhaps after a DNS name and /";
bool IsLabelValue(const std::string& value);
inline constexpr char kLabelValueRule[] =
    "empty, or 63 letters, digits, -, _ and . at most, with a letter or digit at both ends";

// Of an object's metadata, for schema.h.
const Json& MetadataSchema();
// Keys and values of labels, keys of annotations. REQUIRES: `metadata` fits MetadataSchema.
std::vector<Cause> CheckLabels(const Json& metadata, const std::string& path);

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_METADATA_H_
