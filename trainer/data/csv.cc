#include "trainer/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "common/text.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/data/gzip.h"

namespace trainyard {
namespace {

[[noreturn]] void FailAt(const fs::path& path, int64_t line, const std::string& problem) {
  throw DataError(path.string() + ": line " + std::to_string(line) + ": " + problem);
}

std::string Quoted(std::string_view text) { return '"' + Shorten(ValidUtf8(text), 60) + '"'; }

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// One row after the other.
class Parser {
 public:
  Parser(const fs::path& path, std::string_view text) : path_(path), text_(text) {}

  // False at the end of the file. `line`: where the row begins.
  bool Row(std::vector<std::string>& cells, int64_t& line) {
    while (!AtEnd() && EndLine()) {
    }
    if (AtEnd()) return false;
    line = line_;
    cells.clear();
    do {
      if (++cells_ > Csv::kMaxCells)
        FailAt(path_, line_, Format("more than %lld cells up to here", static_cast<long long>(Csv::kMaxCells)));
      cells.push_back(text_[at_] == '"' ? QuotedCell() : PlainCell());
      if (cells.back().find('\0') != std::string::npos) FailAt(path_, line_, "a byte of zero: not a text");
    } while (Comma());
    if (!AtEnd() && !EndLine())
      FailAt(path_, line_, "there is more behind the quote that ends a cell; expected a comma");
    return true;
  }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  bool EndLine() {
    // The last line of a file that was cut between the two ends there as well.
    const std::string_view rest = text_.substr(at_);
    const size_t size = rest.starts_with("\r\n") ? 2 : rest.starts_with('\n') || rest == "\r" ? 1 : 0;
    at_ += size;
    line_ += size > 0;
    return size > 0;
  }
  bool Comma() {
    if (AtEnd() || text_[at_] != ',') return false;
    if (++at_ == text_.size())
      text_ = std::string_view("\n", 1), at_ = 0;  // an empty last cell, without an end of line
    return true;
  }
  std::string PlainCell() {
    size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
    if (end > at_ && text_[end - 1] == '\r' && (end == text_.size() || text_[end] == '\n')) --end;
    const std::string_view cell = text_.substr(at_, end - at_);
    if (cell.find('"') != std::string_view::npos)
      FailAt(path_, line_, "a quote inside of " + Quoted(cell) + ", which is not quoted");
    at_ = end;
    return std::string(cell);
  }
  std::string QuotedCell() {
    const int64_t began = line_;
    std::string cell;
    for (++at_;; ++at_) {
      const size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos) FailAt(path_, began, "a quote begins here and does not end");
      cell += text_.substr(at_, quote - at_);
      line_ += std::count(text_.begin() + static_cast<int64_t>(at_), text_.begin() + static_cast<int64_t>(quote), '\n');
      at_ = quote + 1;
      if (AtEnd() || text_[at_] != '"') return cell;
      cell += '"';
    }
  }

  const fs::path& path_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1, cells_ = 0;
};

void RequireUtf8(const fs::path& path, const std::string& text) {
  const std::string valid = ValidUtf8(text);
  if (valid == text) return;
  const auto [bad, ignored] = std::ranges::mismatch(text, valid);
  FailAt(path, 1 + std::count(text.begin(), bad, '\n'), "not UTF-8");
}

std::string Cell(std::string_view text) {
  if (!text.empty() && text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + '"';
}

}  // namespace

Csv Csv::Read(const fs::path& path) {
  const std::string content = ReadText(path, kMaxBytes);
  RequireUtf8(path, content);
  std::string_view text = content;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  Parser parser(path, text);
  Csv csv;
  csv.path_ = path;
  int64_t line = 1;
  if (!parser.Row(csv.columns_, line)) FailAt(path, 1, "an empty file; expected a header with the names of columns");
  std::set<std::string_view> names;
  for (size_t c = 0; c < csv.columns_.size(); ++c) {
    if (csv.columns_[c].empty()) FailAt(path, line, Format("column %zu has no name", c + 1));
    if (!names.insert(csv.columns_[c]).second) FailAt(path, line, "two columns are named " + Quoted(csv.columns_[c]));
  }
  for (std::vector<std::string> cells; parser.Row(cells, line);) {
    if (cells.size() != csv.columns_.size())
      FailAt(path, line,
             Format("%zu cells; expected %zu, one of each column of the header", cells.size(), csv.columns_.size()));
    std::ranges::move(cells, std::back_inserter(csv.cells_));
    csv.lines_.push_back(line);
  }
  return csv;
}

std::optional<size_t> Csv::Find(std::string_view column) const {
  const auto found = std::ranges::find(columns_, column);
  if (found == columns_.end()) return std::nullopt;
  return static_cast<size_t>(found - columns_.begin());
}

size_t Csv::Column(std::string_view column) const { return AnyColumn({column}); }

size_t Csv::AnyColumn(std::initializer_list<std::string_view> names) const {
  std::vector<std::string> wanted;
  for (std::string_view name : names) {
    if (const auto found = Find(name)) return *found;
    wanted.push_back(std::string(name));
  }
  const std::string nearest = NearestName(wanted.front(), columns_);
  if (columns_.size() == 1) {
    for (const auto& [separator, name] : {std::pair{';', "semicolons"}, {'\t', "tabs"}}) {
      if (columns_.front().find(separator) != std::string::npos)
        throw DataError(path_.string() + ": line 1: its cells are separated by " + name + "; expected commas");
    }
  }
  throw DataError(path_.string() + ": line 1: no column " + Join(wanted, " or ") +
                  (nearest.empty() ? Format("; there are %zu others", columns_.size())
                                   : "; did you mean " + Quoted(nearest) + "?"));
}

const std::string& Csv::Text(int64_t row, size_t column) const {
  return cells_[static_cast<size_t>(row) * columns_.size() + column];
}

std::string_view Csv::Word(int64_t row, size_t column) const { return Trimmed(Text(row, column)); }

double Csv::Number(int64_t row, size_t column) const {
  std::string_view text = Word(row, column);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty()) Fail(row, column, "empty; expected a number");
  if (error != std::errc() || end != text.data() + text.size()) Fail(row, column, Quoted(text) + " is not a number");
  if (!std::isfinite(value)) Fail(row, column, Quoted(text) + " is not finite; expected a number");
  return value;
}

int64_t Csv::Integer(int64_t row, size_t column, int64_t low, int64_t high) const {
  const double value = Number(row, column);
  if (value != std::floor(value) || value < static_cast<double>(low) || value > static_cast<double>(high))
    Fail(row, column,
         Quoted(Text(row, column)) + Format("; expected a whole number from %lld to %lld", static_cast<long long>(low),
                                            static_cast<long long>(high)));
  return static_cast<int64_t>(value);
}

size_t Csv::Choice(int64_t row, size_t column, std::span<const std::string> allowed) const {
  const auto found = std::ranges::find(allowed, std::string(Word(row, column)));
  if (found == allowed.end()) Fail(row, column, Quoted(Text(row, column)) + "; expected " + Join(allowed, " or "));
  return static_cast<size_t>(found - allowed.begin());
}

void Csv::Fail(int64_t row, size_t column, const std::string& problem) const {
  FailAt(path_, lines_[static_cast<size_t>(row)], "column " + columns_[column] + ": " + problem);
}

void WriteCsv(const fs::path& path, std::span<const std::string> columns,
              std::span<const std::vector<std::string>> rows) {
  std::string text;
  const auto add = [&](std::span<const std::string> cells) {
    for (size_t c = 0; c < cells.size(); ++c) text += (c > 0 ? "," : "") + Cell(cells[c]);
    text += '\n';
  };
  add(columns);
  for (const auto& row : rows) add(row);
  WriteFileAtomic(path, path.extension() == ".gz" ? Gzip(text) : text);
}

}  // namespace trainyard
