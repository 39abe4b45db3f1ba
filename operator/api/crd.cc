#include "operator/api/crd.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>

#include "operator/api/fields.h"
#include "operator/api/rules.h"

namespace trainyard::api {
namespace {

// With what holds of every field of its kind; `whole`: an object, whose fields say the rest.
std::string Description(const FieldText& text, bool whole = false) {
  const std::string_view changes = text.changes;
  std::string description = text.text;
  if (changes.empty() || changes == kNever) return description;
  if (whole) return description + (text.required ? "" : " Absent: its fields' defaults.");
  const bool only = changes == kNotWhileRunning || changes == kNotUntilSuspended;
  return description + " May change " + (only ? "only " : "") + text.changes + ".";
}

class SchemaBuilder {
 public:
  Json properties = Json::object();
  Json required = Json::array();

  void Integer(const char* name, int64_t& member, Range range, const FieldText& text) {
    Json& field = Add(name, text, {{"type", "integer"}, {"format", "int64"}});
    Limit(field, range);
    Default(field, text, member);
  }
  void Integer(const char* name, std::optional<int64_t>&, Range range, const FieldText& text) {
    Limit(Add(name, text, {{"type", "integer"}, {"format", "int64"}}), range);
  }
  void IntegerOrAuto(const char* name, std::optional<int64_t>&, Range, const FieldText& text) {
    Json& field = Add(name, text, {{"x-kubernetes-int-or-string", true}});
    field["anyOf"] = Json::array({{{"type", "integer"}}, {{"type", "string"}}});
    Default(field, text, "auto");
  }
  void Number(const char* name, std::optional<double>&, const FieldText& text) {
    Add(name, text, {{"type", "number"}});
  }
  void Boolean(const char* name, bool& member, const FieldText& text) {
    Default(Add(name, text, {{"type", "boolean"}}), text, member);
  }
  void Text(const char* name, std::string& member, const Allowed& allowed, const FieldText& text) {
    Json& field = Add(name, text, {{"type", "string"}});
    for (const std::string_view value : allowed.values) field["enum"].push_back(value);
    if (allowed.max_length > 0) field["maxLength"] = allowed.max_length;
    if (!member.empty()) Default(field, text, member);
  }
  void Moment(const char* name, std::optional<Time>&, const FieldText& text) {
    Add(name, text, {{"type", "string"}, {"format", "date-time"}});
  }
  void Free(const char* name, Json&, const Size&, const FieldText& text) {
    Add(name, text,
        {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}, {"x-kubernetes-map-type", "atomic"}});
  }
  void Integers(const char* name, std::vector<int64_t>&, Range range, const FieldText& text) {
    Json& field = Add(name, text, {{"type", "array"}, {"maxItems", 256}, {"x-kubernetes-list-type", "set"}});
    field["items"] = {{"type", "integer"}, {"format", "int64"}};
    Limit(field["items"], range);
  }
  void Texts(const char* name, std::vector<std::string>&, const Allowed& allowed, const FieldText& text) {
    Json& items = Add(name, text, {{"type", "array"}, {"maxItems", text.most_items}})["items"];
    items = {{"type", "string"}};
    if (allowed.max_length > 0) items["maxLength"] = allowed.max_length;
  }
  template <class T>
  void Object(const char* name, T& member, const FieldText& text) {
    Json& field = Add(name, text, {}, true);
    field.update(Schema(member));
    // A default inside is given only to an object that is there.
    const Json& inner = field["properties"];
    if (std::any_of(inner.begin(), inner.end(), [](const Json& each) { return each.contains("default"); }))
      Default(field, text, Json::object());
  }
  template <class T>
  void Object(const char* name, std::optional<T>&, const FieldText& text) {
    T member;
    Object(name, member, text);
  }
  template <class T>
  void List(const char* name, std::vector<T>&, const FieldText& text) {
    Json& field = Add(name, text, {{"type", "array"}, {"maxItems", text.most_items}});
    T item;
    field["items"] = Schema(item);
    if constexpr (std::is_same_v<T, Condition>) {
      field["x-kubernetes-list-type"] = "map";
      field["x-kubernetes-list-map-keys"] = {"type"};
    } else {
      field["x-kubernetes-list-type"] = "atomic";
    }
  }

  template <class T>
  static Json Schema(T& member) {
    SchemaBuilder builder;
    Fields(builder, member);
    Json schema = {{"type", "object"}, {"properties", std::move(builder.properties)}};
    if (!builder.required.empty()) schema["required"] = std::move(builder.required);
    return schema;
  }

 private:
  Json& Add(const char* name, const FieldText& text, Json schema, bool whole = false) {
    if (text.required) required.push_back(name);
    if (schema.is_null()) schema = Json::object();
    schema["description"] = Description(text, whole);
    return properties[name] = std::move(schema);
  }
  // What a member is before anything is read into it. Of the spec alone: a status tells what is, not what is usual.
  static void Default(Json& field, const FieldText& text, const Json& value) {
    if (!text.required && *text.changes) field["default"] = value;
  }
  static void Limit(Json& field, Range range) {
    field["minimum"] = range.min;
    if (range.max != Range{}.max) field["maximum"] = range.max;
  }
};

// Two of them would be emphasis.
std::string EscapeStars(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '*' ? "\\*" : std::string(1, c);
  return escaped;
}

// A row per field, in the order of fields.h.
class ReferenceBuilder {
 public:
  ReferenceBuilder(std::ostream& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

  template <class T>
  void Integer(const char* name, T&, Range range, const FieldText& text) {
    Row(name,
        range.max == Range{}.max ? "integer"
                                 : "integer, " + std::to_string(range.min) + " to " + std::to_string(range.max),
        text);
  }
  void IntegerOrAuto(const char* name, std::optional<int64_t>&, Range range, const FieldText& text) {
    Row(name, "integer, " + std::to_string(range.min) + " to " + std::to_string(range.max) + ", or auto", text);
  }
  void Number(const char* name, std::optional<double>&, const FieldText& text) { Row(name, "number", text); }
  void Boolean(const char* name, bool&, const FieldText& text) { Row(name, "boolean", text); }
  void Text(const char* name, std::string&, const Allowed& allowed, const FieldText& text) {
    std::string type = "string";
    for (size_t i = 0; i < allowed.values.size(); ++i) type += (i == 0 ? ": " : ", ") + std::string(allowed.values[i]);
    Row(name, type, text);
  }
  void Moment(const char* name, std::optional<Time>&, const FieldText& text) { Row(name, "time", text); }
  void Free(const char* name, Json&, const Size&, const FieldText& text) { Row(name, "object", text); }
  void Integers(const char* name, std::vector<int64_t>&, Range, const FieldText& text) {
    Row(name, "list of integers", text);
  }
  void Texts(const char* name, std::vector<std::string>&, const Allowed&, const FieldText& text) {
    Row(name, "list of strings", text);
  }
  template <class T>
  void Object(const char* name, T& member, const FieldText& text) {
    Row(name, "object", text, true);
    ReferenceBuilder inner(out_, prefix_ + name + ".");
    Fields(inner, member);
  }
  template <class T>
  void Object(const char* name, std::optional<T>&, const FieldText& text) {
    T member;
    Object(name, member, text);
  }
  template <class T>
  void List(const char* name, std::vector<T>&, const FieldText& text) {
    Row(name, "list", text);
    T item;
    ReferenceBuilder inner(out_, prefix_ + name + "[].");
    Fields(inner, item);
  }

 private:
  void Row(const char* name, const std::string& type, const FieldText& text, bool whole = false) {
    out_ << "| `" << prefix_ << name << "` | " << type << " | " << EscapeStars(Description(text, whole))
         << (text.required && *text.changes ? " Required." : "") << " |\n";
  }
  std::ostream& out_;
  std::string prefix_;
};

bool Plain(const std::string& text) {
  // Words that some reader of YAML 1.1 takes for a boolean or for nothing, in any case.
  static const std::vector<std::string> words = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text.empty() || std::find(words.begin(), words.end(), lower) != words.end()) return false;
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("./_-", c)) return false;
  }
  return std::isalpha(static_cast<unsigned char>(text.front())) != 0;
}

// Block style for objects and lists; scalars as JSON, which YAML contains, unless plain is safe.
void WriteYaml(std::ostream& out, const Json& value, int indent, bool in_list) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  if (value.is_object() && !value.empty()) {
    bool first = in_list;
    for (const auto& [key, item] : value.items()) {
      out << (first ? "" : pad) << (Plain(key) ? key : Json(key).dump()) << ':';
      first = false;
      if (item.is_structured() && !item.empty()) {
        out << '\n';
        WriteYaml(out, item, item.is_array() ? indent : indent + 2, false);
      } else {
        out << ' ';
        WriteYaml(out, item, 0, false);
      }
    }
  } else if (value.is_array() && !value.empty()) {
    for (const Json& item : value) {
      out << pad << "- ";
      WriteYaml(out, item, indent + 2, true);
    }
  } else {
    out << (value.is_string() && Plain(value.get_ref<const std::string&>()) ? value.get<std::string>() : value.dump())
        << '\n';
  }
}

Json Column(const char* name, const char* type, const char* path, int priority = 0) {
  Json column = {{"name", name}, {"type", type}, {"jsonPath", path}};
  if (priority > 0) column["priority"] = priority;
  return column;
}

}  // namespace

Json JobSchema() {
  JobSpec spec;
  JobStatus status;
  Json schema = {{"type", "object"},
                 {"required", {"spec"}},
                 {"description", "A distributed training run: workers that start, restart and end together."}};
  Json& properties = schema["properties"];
  properties["apiVersion"] = {{"type", "string"}, {"description", "trainyard.dev/v1alpha1"}};
  properties["kind"] = {{"type", "string"}, {"description", "TrainingJob"}};
  properties["metadata"] = {{"type", "object"}};
  properties["spec"] = SchemaBuilder::Schema(spec);
  properties["spec"]["description"] = "What to run, and what to do when it fails.";
  properties["status"] = SchemaBuilder::Schema(status);
  properties["status"]["description"] = "What the operator sees, and why it does what it does.";
  // One program writes it. Who set which of its fields would be half of the object, and a quarter of what each write
  // costs the API server.
  properties["status"]["x-kubernetes-map-type"] = "atomic";
  for (const FieldRule& rule : FieldRules()) {
    Json* field = &schema;
    for (const std::string_view part : rule.path)
      field = part == "[]" ? &(*field)["items"] : &(*field)["properties"][std::string(part)];
    (*field)["x-kubernetes-validations"] = {{{"rule", rule.cel}, {"message", rule.message}}};
  }
  for (const Rule& rule : RootRules()) {
    Json item = {{"rule", rule.cel}, {"message", rule.message}};
    if (rule.reported_at_field) item["fieldPath"] = "." + rule.field;
    schema["x-kubernetes-validations"].push_back(std::move(item));
  }
  return schema;
}

Json CustomResourceDefinition() {
  Json version = {
      {"name", kVersion}, {"served", true}, {"storage", true}, {"subresources", {{"status", Json::object()}}}};
  version["subresources"]["scale"] = {{"specReplicasPath", ".spec.workers"},
                                      {"statusReplicasPath", ".status.workers.active"}};
  version["selectableFields"] = Json::array({{{"jsonPath", ".spec.managedBy"}}, {{"jsonPath", ".status.phase"}}});
  version["schema"]["openAPIV3Schema"] = JobSchema();
  version["additionalPrinterColumns"] = {
      Column("Phase", "string", ".status.phase"),
      Column("Ready", "integer", ".status.workers.ready"),
      Column("Desired", "integer", ".status.workers.desired"),
      Column("Step", "integer", ".status.progress.step"),
      Column("Progress%", "integer", ".status.progress.percent"),
      Column("ETA(s)", "integer", ".status.progress.etaSeconds"),
      Column("Restarts", "integer", ".status.restarts.total"),
      Column("Age", "date", ".metadata.creationTimestamp"),
      Column("Attempt", "integer", ".status.attempt", 1),
      Column("Loss", "number", ".status.progress.loss", 1),
      Column("Cause", "string", ".status.lastFailure.reason", 1),
  };
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", std::string(kPlural) + "." + kGroup}}},
          {"spec",
           {{"group", kGroup},
            {"scope", "Namespaced"},
            {"names",
             {{"kind", kKind},
              {"listKind", "TrainingJobList"},
              {"plural", kPlural},
              {"singular", "trainingjob"},
              {"shortNames", {"tj"}},
              {"categories", {"all"}}}},
            {"versions", {version}}}}};
}

std::string CrdYaml() {
  std::ostringstream out;
  out << "# Generated by `trainyard-operator crd`; do not edit.\n";
  WriteYaml(out, CustomResourceDefinition(), 0, false);
  return out.str();
}

std::string ReferenceMarkdown() {
  std::ostringstream out;
  out << "# TrainingJob " << kApiVersion
      << "\n\n<!-- Generated by `trainyard-operator crd --reference`; do not edit. -->\n\n"
      << "`metadata.name`: at most 40 characters of a-z, 0-9 and -, from a letter to a letter or digit; pods and "
      << "labels are named after it.\n\n"
      << "## spec\n\n| field | type | meaning |\n|---|---|---|\n";
  JobSpec spec;
  ReferenceBuilder spec_builder(out, "spec.");
  Fields(spec_builder, spec);
  out << "\n## status\n\nWritten by the operator alone.\n\n| field | type | meaning |\n|---|---|---|\n";
  JobStatus status;
  ReferenceBuilder status_builder(out, "status.");
  Fields(status_builder, status);
  return out.str();
}

}  // namespace trainyard::api
