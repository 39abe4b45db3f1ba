#include "trainer/metrics/leading_lines.h"

#include <algorithm>
#include <span>

#include "trainer/base/error.h"

namespace trainyard {

uint64_t LeadingLines(const InputFile& file, const std::function<bool(const std::string& line)>& stays) {
  constexpr uint64_t kPiece = 1 << 20;
  uint64_t kept = 0;
  std::string piece, line;
  for (uint64_t offset = 0; offset < file.size(); offset += piece.size()) {
    piece.resize(static_cast<size_t>(std::min(kPiece, file.size() - offset)));
    file.ReadAt(offset, std::as_writable_bytes(std::span(piece)));
    size_t begin = 0;
    for (size_t end; (end = piece.find('\n', begin)) != std::string::npos; begin = end + 1) {
      line.append(piece, begin, end - begin);
      if (!stays(line)) return kept;
      kept += line.size() + 1;
      line.clear();
    }
    line.append(piece, begin);
  }
  return kept;
}

void KeepLeadingLines(const std::filesystem::path& path, const std::function<bool(const std::string& line)>& stays) {
  const uint64_t kept = LeadingLines(InputFile(path), stays);
  std::error_code error;
  std::filesystem::resize_file(path, kept, error);
  if (error) throw StorageError("cannot cut " + path.string() + ": " + error.message());
}

}  // namespace trainyard
