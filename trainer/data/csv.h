// Tables as CSV (RFC 4180), gzipped or not: a header, and columns by name.
#ifndef TRAINYARD_TRAINER_DATA_CSV_H_
#define TRAINYARD_TRAINER_DATA_CSV_H_

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

// Every cell in memory as text. Rows count from 0 here; errors name a row by its line in the file, as editors do.
// Safe for any number of threads.
class Csv {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 28;  // 16 bytes for each of the cells
  static constexpr int64_t kMaxCells = int64_t{1} << 24;    // an empty one is a byte of the file and 32 of memory

  // Commas, quotes, lines that end in LF or CRLF, a byte order mark; empty lines are skipped.
  // Throws DataError naming file and line: no header, a column without a name or named twice, another number of cells
  // than the header's, a quote that does not end, bytes behind one, not UTF-8, too many cells. Otherwise as ReadText
  // does.
  static Csv Read(const std::filesystem::path& path);

  int64_t rows() const { return static_cast<int64_t>(lines_.size()); }
  const std::vector<std::string>& columns() const { return columns_; }

  std::optional<size_t> Find(std::string_view column) const;
  // Throws DataError naming file, column and the nearest that there is.
  size_t Column(std::string_view column) const;
  // The first of these names that there is: formats that grew have several. Throws like Column.
  size_t AnyColumn(std::initializer_list<std::string_view> names) const;

  int64_t line(int64_t row) const { return lines_[static_cast<size_t>(row)]; }
  const std::string& Text(int64_t row, size_t column) const;
  // The same without the spaces and tabs around it.
  std::string_view Word(int64_t row, size_t column) const;
  // A finite number in plain or scientific notation, white space around it. Throws DataError naming file, line, column,
  // the text and what is expected.
  double Number(int64_t row, size_t column) const;
  // The same for a whole number from `low` to `high`; "1.0" is one.
  int64_t Integer(int64_t row, size_t column, int64_t low, int64_t high) const;
  // One of `allowed`, its index.
  size_t Choice(int64_t row, size_t column, std::span<const std::string> allowed) const;

  // Throws DataError "FILE: line 12: column time: PROBLEM".
  [[noreturn]] void Fail(int64_t row, size_t column, const std::string& problem) const;

 private:
  std::filesystem::path path_;
  std::vector<std::string> columns_;
  std::vector<std::string> cells_;  // row by row
  std::vector<int64_t> lines_;      // of each row, from 1
};

// Rows as CSV, quoted where they must be, with LF; gzipped where the name ends in .gz; in one step. Throws
// StorageError. REQUIRES: every row has as many cells as the header.
void WriteCsv(const std::filesystem::path& path, std::span<const std::string> columns,
              std::span<const std::vector<std::string>> rows);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_CSV_H_
