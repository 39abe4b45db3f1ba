#include "operator/local/api/label_selector.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "operator/api/metadata.h"

namespace trainyard::local {
namespace {

constexpr char kSpecial[] = "()=!<>,";

// Splits the text at white space and at the longest operators; every other run of characters is a word.
std::vector<std::string> Tokens(const std::string& text) {
  constexpr char kBlank[] = " \t\r\n";
  const std::string ends = std::string(kSpecial) + kBlank;
  std::vector<std::string> tokens;
  for (size_t at = text.find_first_not_of(kBlank); at != std::string::npos; at = text.find_first_not_of(kBlank, at)) {
    size_t end = text.find_first_of(ends, at);
    if (end == at) end = at + (text.compare(at, 2, "==") == 0 || text.compare(at, 2, "!=") == 0 ? 2 : 1);
    end = std::min(end, text.size());
    tokens.push_back(text.substr(at, end - at));
    at = end;
  }
  return tokens;
}

bool IsWord(const std::string& token) {
  return !token.empty() && std::string(kSpecial).find(token[0]) == std::string::npos;
}

bool IsInteger(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

class Parser {
 public:
  explicit Parser(const std::string& text) : tokens_(Tokens(text)) {}

  Result<std::vector<Requirement>> Parse() {
    std::vector<Requirement> all;
    if (Next().empty()) return all;
    if (!IsWord(Next()) && Next() != "!") return Wrong("!, identifier, or 'end of string'");
    while (true) {
      Result<Requirement> one = One();
      if (!one.ok()) return one.status().With("unable to parse requirement");
      all.push_back(std::move(*one));
      if (Next().empty()) return all;
      if (Next() != ",") return Wrong("',' or 'end of string'");
      ++at_;
      if (!IsWord(Next()) && Next() != "!") return Wrong("identifier after ','");
    }
  }

 private:
  // The next token; empty at the end.
  const std::string& Next() const {
    static const std::string end;
    return at_ < tokens_.size() ? tokens_[at_] : end;
  }
  std::string Take() { return at_ < tokens_.size() ? tokens_[at_++] : ""; }
  Status Wrong(const std::string& expected) const {
    return Status(Code::kInvalid, "found '" + Next() + "', expected: " + expected);
  }

  Result<Requirement> One() {
    Requirement requirement;
    const bool negated = Next() == "!";
    if (negated) ++at_;
    if (!IsWord(Next())) return Wrong("identifier");
    requirement.key = Take();
    if (!api::IsLabelKey(requirement.key))
      return Status(Code::kInvalid, "key: Invalid value: \"" + requirement.key + "\": must be " + api::kLabelKeyRule);
    requirement.kind = negated ? Requirement::kMissing : Requirement::kExists;
    if (negated || Next().empty() || Next() == ",") return requirement;
    if (Status status = Compare(requirement); !status.ok()) return status;
    for (size_t i = 0; i < requirement.values.size(); ++i) {
      const std::string& value = requirement.values[i];
      const bool number = requirement.kind == Requirement::kGreater || requirement.kind == Requirement::kLess;
      const std::string place = "values[" + std::to_string(i) + "]: Invalid value: \"" + value + "\": ";
      if (number && !IsInteger(value))
        return Status(Code::kInvalid, place + "for 'Gt', 'Lt' operators, the value must be an integer");
      if (!api::IsLabelValue(value)) return Status(Code::kInvalid, place + "must be " + api::kLabelValueRule);
    }
    return requirement;
  }

  // The operator and what stands behind it.
  Status Compare(Requirement& requirement) {
    const std::string word = Next();
    if (word == "in" || word == "notin") {
      ++at_;
      requirement.kind = word == "in" ? Requirement::kIn : Requirement::kNotIn;
      return ValueList(requirement.values);
    }
    if (word != "=" && word != "==" && word != "!=" && word != ">" && word != "<")
      return Wrong("in, notin, =, ==, !=, gt, lt");
    ++at_;
    requirement.kind = word == "!="  ? Requirement::kNotIn
                       : word == ">" ? Requirement::kGreater
                       : word == "<" ? Requirement::kLess
                                     : Requirement::kIn;
    if (Next().empty() || Next() == ",") {
      requirement.values.emplace_back();
    } else if (IsWord(Next())) {
      requirement.values.push_back(Take());
    } else {
      return Wrong("identifier");
    }
    return Status::Ok();
  }

  // "(a,b)"; what is missing between commas is the empty text.
  Status ValueList(std::vector<std::string>& values) {
    if (Next() != "(") return Wrong("'('");
    ++at_;
    if (Next() == ")") return ++at_, Status::Ok();
    while (true) {
      values.push_back(IsWord(Next()) ? Take() : "");
      if (Next() != "," && Next() != ")") return Wrong("',' or ')'");
      if (Take() == ")") return Status::Ok();
    }
  }

  const std::vector<std::string> tokens_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<Requirement>> ParseLabelSelector(const std::string& text) { return Parser(text).Parse(); }

}  // namespace trainyard::local
