#include "common/yaml.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <random>

namespace trainyard {
namespace {

using Json = nlohmann::json;

Json Read(const std::string& text) {
  auto read = ReadYaml(text);
  if (const auto* error = std::get_if<YamlError>(&read)) {
    ADD_FAILURE() << text << "\n" << error->In("text");
    return {};
  }
  return std::get<Json>(read);
}

std::string ErrorOf(const std::string& text) {
  auto read = ReadYaml(text);
  const auto* error = std::get_if<YamlError>(&read);
  return error ? error->In("f") : "no error";
}

TEST(Yaml, ScalarsOfTheCoreSchema) {
  EXPECT_EQ(Read(R"({a: 1, b: 1.5e-3, c: "1", d: true, e: yEs, f: null, g: 0x1G, h: -3, i: +4, j: .5, k: ~, l: ''})"),
            Json::parse(R"({"a":1,"b":0.0015,"c":"1","d":true,"e":"yEs","f":null,"g":"0x1G","h":-3,"i":4,"j":0.5,
                            "k":null,"l":""})"));
  EXPECT_EQ(Read("[+-5, -, ., 1e999, inf, .nan, 1.2.3, 9223372036854775807, 1-2, !!str 5]"),
            Json::parse(R"(["+-5","-",".","1e999","inf",".nan","1.2.3",9223372036854775807,"1-2","5"])"));
  EXPECT_TRUE(Read("9223372036854775808").is_number_float());
  EXPECT_EQ(Read(""), Json());
  EXPECT_EQ(Read("--- # nothing\n...\n"), Json());
  EXPECT_EQ(Read("a: |\n  x\n  y\nb: {true: 1, 2: x}\n"), Json::parse(R"({"a":"x\ny\n","b":{"true":1,"2":"x"}})"));
}

// Each is what kubectl 1.34 says of it. Go reads "08" as a float, which is the same number.
TEST(Yaml, WholeNumbersAreWhatTheyAreToKubectl) {
  EXPECT_EQ(Read("[0644, 010, -010, +010, 0x1f, 0X1F, -0x10, 0o17, 0b101, 0, 00, -0]"),
            Json::parse("[420, 8, -8, 8, 31, 31, -16, 15, 5, 0, 0, 0]"));
  EXPECT_EQ(Read("[08, 0.5, 0e1, 019, '010']"), Json::parse(R"([8, 0.5, 0, 19, "010"])"));
  EXPECT_EQ(Read("[1_000, 1__0, +1_0, 1_, 0x_1f, 0_10, 1_0.5, 1_e3]"),
            Json::parse("[1000, 10, 10, 1, 31, 8, 10.5, 1000]"));
  EXPECT_EQ(Read("[_1, 1_a, '1_0']"), Json::parse(R"(["_1", "1_a", "1_0"])"));
  for (const auto& [text, whole] : {std::pair("2.0", 2), {"2.", 2}, {"1e3", 1000}, {"-0.0", 0}})
    EXPECT_TRUE(Read(text).is_number_integer() && Read(text) == whole) << text;
  EXPECT_TRUE(Read("1e20").is_number_float() && Read("1e20") == 1e20);
  EXPECT_EQ(Read("[0x, 0o, 0b2, 0x-1, 0o8, 01x, 0xffffffffffffffffff, 0-7]"),
            Json::parse(R"(["0x", "0o", "0b2", "0x-1", "0o8", "01x", "0xffffffffffffffffff", "0-7"])"));
}

// The same of truths. A key stays what it is: to kubectl it would be "true".
TEST(Yaml, TruthsAreWhatTheyAreToKubectl) {
  EXPECT_EQ(Read("[y, Y, yes, Yes, YES, on, On, ON, true, True]"), Json(std::vector<bool>(10, true)));
  EXPECT_EQ(Read("[n, N, no, No, NO, off, Off, OFF, false, FALSE]"), Json(std::vector<bool>(10, false)));
  EXPECT_EQ(Read("[yEs, oN, 'yes', \"off\"]"), Json::parse(R"(["yEs", "oN", "yes", "off"])"));
  EXPECT_EQ(Read("on: 1\ny: 2\n"), Json::parse(R"({"on": 1, "y": 2})"));
}

TEST(Yaml, AliasesAndMergeKeys) {
  EXPECT_EQ(Read("a: &x {p: 1}\nb: *x\nc: {<<: *x, q: 2}\nd: {p: 3, <<: [*x, {r: 4}]}\n\"<<\": 5\n"),
            Json::parse(R"({"a":{"p":1},"b":{"p":1},"c":{"p":1,"q":2},"d":{"p":3,"r":4},"<<":5})"));
  EXPECT_EQ(Read("a: &k name\n*k : 1\n"), Json::parse(R"({"a":"name","name":1})"));
}

TEST(Yaml, ErrorsNameThePlace) {
  EXPECT_EQ(ErrorOf("a: 1\nb:\n  c: 2\n  c: 3\n"), "f:4:3: key c appears twice");
  EXPECT_EQ(ErrorOf("a: 1\n[b]: 2\n"), "f:2:1: a key is no text");
  EXPECT_EQ(ErrorOf("a: 1\n{b: 3}: 2\n"), "f:2:1: a key is no text");
  EXPECT_EQ(ErrorOf("[0.9, 0.99").find("a key"), std::string::npos);
  EXPECT_EQ(ErrorOf(","), "f:1:1: not valid YAML: no value can begin here");
  EXPECT_EQ(ErrorOf("a: 1\n]\n"), "f:2:1: not valid YAML: illegal flow end");
  EXPECT_EQ(ErrorOf("null: 2\n"), "f:1:1: a key is no text");
  EXPECT_EQ(ErrorOf("a: 1\n---\nb: 2\n"), "f: holds 2 documents; allowed: one");
  EXPECT_EQ(ErrorOf("a: !!python/object x\n"), "f:1:4: the tag tag:yaml.org,2002:python/object is not supported");
  EXPECT_EQ(ErrorOf("a: {<<: 5}\n"), "f:1:9: <<: expected an object, or a list of objects");
  const std::string tab = "; the line is indented by a tab";
  EXPECT_EQ(ErrorOf("a:\n\tb: 1\n"), "f:2:3: not valid YAML: illegal map value" + tab);
  EXPECT_EQ(ErrorOf("a:\n  b:\n  \tc: 1\n"), "f:3:5: not valid YAML: illegal map value" + tab);
  EXPECT_EQ(ErrorOf("a: 1\n]\tb"), "f:2:1: not valid YAML: illegal flow end") << "a tab elsewhere";
  EXPECT_EQ(Read("{\"a\": 1,\n\t\"b\": 2}"), Json::parse(R"({"a":1,"b":2})"));
  EXPECT_EQ(ErrorOf("a: *b\n").substr(0, 25), "f:1:4: not valid YAML: th");
  EXPECT_EQ(ErrorOf("a: [1\n").substr(0, 2), "f:");
  EXPECT_EQ(ErrorOf("a: \xff\n"), "f:1:4: is not UTF-8 text");
  EXPECT_EQ(ErrorOf("a: \xed\xa0\x80\n"), "f:1:4: is not UTF-8 text");                    // half of a surrogate pair
  EXPECT_EQ(ErrorOf("a: 1\nb: 2 \x04\nc: 3\n"), "f:2:6: holds the control character 4");  // yaml-cpp would stop there
}

std::string Repeated(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// A table may be part of a manifest.
TEST(Yaml, CommasOfATextAreNoValues) {
  const std::string table = Repeated("  1,2,3,4,5,6,7,8,9,10\n", 30000), job = "a: [1, {b: 2}] # (\n";
  for (const std::string& text : {"c: |\n" + table, "c: \"\n" + table + "\"\n", "c:\n" + table}) {
    const auto read = ReadYamlDocuments(job + "---\n" + text + "--- \n" + job);
    const auto* documents = std::get_if<std::vector<Json>>(&read);
    ASSERT_TRUE(documents) << std::get<YamlError>(read).In("f") << "\n" << text.substr(0, 20);
    ASSERT_EQ(documents->size(), 3u);
    EXPECT_GT((*documents)[1]["c"].get_ref<const std::string&>().size(), 600000u);
  }
  EXPECT_EQ(ErrorOf("a: |\n" + Repeated("  [\n", 10001)),
            "f:10002:3: more than 10000 brackets are not closed, those in texts counted");
}

// Each document is read for itself, and its lines are the text's.
TEST(Yaml, DocumentsEndAtTheirMarkers) {
  const auto count = [](const std::string& text) {
    const auto read = ReadYamlDocuments(text);
    const auto* documents = std::get_if<std::vector<Json>>(&read);
    return documents ? std::to_string(documents->size()) : std::get<YamlError>(read).In("f");
  };
  EXPECT_EQ(count("--- 1\n--- 2\n---\n---\t3\r\n---\r\n4\n...\n5\n---"), "5");
  EXPECT_EQ(count("---x: 1\n---y: 2\n"), "1");
  EXPECT_EQ(count("a: |\n  ---\n  b\n"), "1");
  EXPECT_EQ(count("# c\n%YAML 1.2\n--- 1\n...\n%YAML 1.2\n--- 2\n"), "2");
  EXPECT_EQ(count("a: 1\n---\nb: 2\nb: 3\n"), "f:4:1: key b appears twice");
  EXPECT_EQ(count("a: 1\n---\nb: \xff\n"), "f:3:4: is not UTF-8 text");
  EXPECT_EQ(count("a: \"x\n---\nb: y\n"), "f:2:1: not valid YAML: illegal document indicator in scalar");
  EXPECT_EQ(count("a: 1\n---\n" + Repeated("- &a x\n- *a\n---\n", 1001)), "f:3004:3: more than 1000 aliases");
  EXPECT_EQ(count(Repeated("--- 1\n", 5000)), "5000");
}

// Each costs next to nothing: the limits stop the reading, not the memory or the stack.
// KiB. A sanitizer keeps freed memory for a while, and memory about memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long kMostMemory = 4 << 20;
#else
constexpr long kMostMemory = 150 << 10;
#endif

TEST(Yaml, HostileTextsAreRefusedCheaply) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + Repeated("," + before, 8) + "]\n";
  }
  std::string anchors;
  for (int i = 0; i < 90; ++i) anchors += "[&a" + std::to_string(i) + " ";
  anchors += Repeated("x,", 100000) + Repeated("]", 90);
  const struct {
    const char* name;
    std::string text;
    const char* says;
  } cases[] = {
      {"an alias inside of itself", "a: &a {b: *a}", "f:1:11: an alias stands inside of what it names"},
      {"nine levels of nine aliases", bomb, "values, aliases expanded"},
      {"long text, repeated", "a: &a " + std::string(100000, 'x') + "\nb: [" + Repeated("*a,", 999) + "]",
       "bytes, aliases expanded"},
      {"many aliases", "a: &a 1\nb: [" + Repeated("*a,", 1001) + "]", "more than 1000 aliases"},
      {"anchors around each other", anchors, "values, aliases expanded"},
      {"lists in lists", Repeated("[", 1000000), "more than 10000 brackets are not closed"},
      {"objects in objects", Repeated("{a: ", 500000), "more than 10000 brackets are not closed"},
      {"objects as keys", Repeated("{", 1000000), "more than 10000 brackets are not closed"},
      {"block lists in lists", Repeated("- ", 100000) + "x", "more than 100 deep"},
      {"block keys", Repeated("? ", 100000) + "x", "more than 100 deep"},
      {"single pairs", Repeated("[a: ", 100000), "more than 10000 brackets are not closed"},
      {"merges", "a: &a {b: 1}\nc: {" + Repeated("<<: *a, ", 1001) + "}", "more than 1000 aliases"},
      {"many values", "[" + Repeated("1,", 300000) + "]", "more than 200000 values"},
      {"many short values", "[" + Repeated("a,", 2000000), "more than 200000 values"},
      {"objects in a list", "- [" + Repeated("{},", 1300000), "more than 200000 values"},
      {"values behind a bracket in quotes", "[\"]\", " + Repeated("a,", 2000000), "more than 200000 values"},
      {"commas in a line", "\"a\" " + Repeated(",", 4000000), "more than 200000 values"},
      {"brackets before a document", "[\n---\n" + Repeated("[", 1000000), "f:2:1: not valid YAML"},
      {"long", std::string(5 << 20, ' '), "is larger than 4194304 bytes"},
  };
  for (const auto& c : cases)
    EXPECT_NE(ErrorOf(c.text).find(c.says), std::string::npos) << c.name << ": " << ErrorOf(c.text).substr(0, 200);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, kMostMemory) << "KiB; reading must not keep what it refuses";
}

Json RandomValue(std::mt19937_64& random, int depth) {
  static const char* const kTexts[] = {"",    "x",          "true", "null", "1", "-1.5", "a: b", "# no",
                                       "- x", "\"quoted\"", "a\nb", "\t",   "é", "𝄞",    "&a",   "*a",
                                       "<<",  "!tag",       "{",    "]",    "%", "0x1",  "~",    "\\"};
  const auto pick = [&](uint64_t n) { return random() % n; };
  switch (pick(depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return pick(2) == 0;
    case 2:
      return static_cast<int64_t>(random());
    case 3:
      return static_cast<double>(static_cast<int64_t>(random())) / 1024;
    case 4:
      return kTexts[pick(std::size(kTexts))];
    case 5: {
      Json list = Json::array();
      for (uint64_t i = pick(5); i > 0; --i) list.push_back(RandomValue(random, depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (uint64_t i = pick(5); i > 0; --i) object[kTexts[pick(std::size(kTexts))]] = RandomValue(random, depth - 1);
      return object;
    }
  }
}

TEST(Yaml, JsonIsASubset) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    const Json value = RandomValue(random, 5);
    if (value.is_null()) continue;
    const std::string text = value.dump(seed % 2 == 0 ? -1 : 2);
    auto read = ReadYaml(text);
    ASSERT_TRUE(std::holds_alternative<Json>(read))
        << "seed " << seed << ": " << std::get<YamlError>(read).In("f") << "\n"
        << text;
    ASSERT_EQ(std::get<Json>(read), value) << "seed " << seed << "\n" << text;
  }
}

// Whatever comes, it is a value or an error; the sanitizers see the rest.
TEST(Yaml, RandomTextsGiveAValueOrAnError) {
  static const char* const kPieces[] = {
      "a",   "b: ",         ": ",   "- ",     "\n",  "\n  ", "\n    ",   "[",    "]",    "{",     "}",     ",",
      "&a ", "*a",          "<<: ", "!!str ", "!x ", "\"",   "'",        "|\n",  ">-\n", "# c\n", "---\n", "...\n",
      "? ",  "%YAML 1.2\n", "\t",   "1",      "~",   "\\",   "\xc3\xa9", "\xff", "\x04", "@",     "`"};
  int values = 0, errors = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::string text;
    for (uint64_t i = random() % 40; i > 0; --i) text += kPieces[random() % std::size(kPieces)];
    auto read = ReadYamlDocuments(text);
    if (const auto* documents = std::get_if<std::vector<Json>>(&read)) {
      for (const Json& document : *documents) static_cast<void>(document.dump());  // which is strict about UTF-8
      ++values;
    } else {
      EXPECT_FALSE(std::get<YamlError>(read).what.empty());
      ++errors;
    }
  }
  EXPECT_GT(values, 500);
  EXPECT_GT(errors, 500);
}

}  // namespace
}  // namespace trainyard
