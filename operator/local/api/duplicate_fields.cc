#include "operator/local/api/duplicate_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace trainyard::local {
namespace {

using Json = nlohmann::json;

// A list or an object that is being read.
struct Open {
  std::set<std::string> keys;
  std::string key;               // of the value that comes
  std::optional<size_t> number;  // of the value that comes, in a list
};

class Finder : public Json::json_sax_t {
 public:
  std::vector<std::string> found;

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(number_integer_t) override { return Value(); }
  bool number_unsigned(number_unsigned_t) override { return Value(); }
  bool number_float(number_float_t, const string_t&) override { return Value(); }
  bool string(string_t&) override { return Value(); }
  bool binary(binary_t&) override { return Value(); }
  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override { return End(); }
  bool start_array(std::size_t) override {
    open_.emplace_back().number = 0;
    return true;
  }
  bool end_array() override { return End(); }
  bool key(string_t& key) override {
    open_.back().key = key;
    if (!open_.back().keys.insert(key).second) Found();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool Value() {
    if (!open_.empty() && open_.back().number) ++*open_.back().number;
    return true;
  }
  bool End() {
    open_.pop_back();
    return Value();
  }
  void Found() {
    std::string path;
    for (const Open& each : open_) {
      if (each.number) {
        path += "[" + std::to_string(*each.number) + "]";
      } else {
        path += (path.empty() ? "" : ".") + each.key;
      }
    }
    if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
  }
  std::vector<Open> open_;
};

}  // namespace

std::vector<std::string> DuplicateFields(const std::string& text) {
  Finder finder;
  Json::sax_parse(text, &finder);
  return std::move(finder.found);
}

}  // namespace trainyard::local
