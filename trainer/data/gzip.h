// Gzip files (RFC 1952) as a whole, and files that may be gzipped.
//
// Decompression is by libdeflate where the size is known before: one call with all of the input and the output.
#ifndef TRAINYARD_TRAINER_DATA_GZIP_H_
#define TRAINYARD_TRAINER_DATA_GZIP_H_

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

// Whatever its name says: by the first two bytes.
bool IsGzip(std::span<const std::byte> content);

// The most bytes that so many can stand for: deflate's best is 1,032 to one.
uint64_t MostInflated(uint64_t compressed);

// The content of a file of at most `limit` bytes. Throws DataError: no such file, not a file, larger, a right
// that is missing; StorageError where the file system gives no answer.
std::vector<std::byte> ReadDataFile(const std::filesystem::path& path, uint64_t limit);

// The first bytes of what `compressed` stands for, at most to.size(); how many there were. Damage behind them is not
// seen. Throws DataError naming `path` and the problem.
size_t InflateStart(const std::filesystem::path& path, std::span<const std::byte> compressed, std::span<std::byte> to);

// Fills `to`, and proves the checksums of all members; what may follow (16 MiB at most) is read and dropped.
// Throws DataError naming `path` when it is truncated, damaged, holds fewer bytes or goes on for longer.
void Inflate(const std::filesystem::path& path, std::span<const std::byte> compressed, std::span<std::byte> to);

// The text of a file, gzipped or not, of at most `limit` bytes in either form. Throws as ReadDataFile and Inflate do.
std::string ReadText(const std::filesystem::path& path, uint64_t limit);

// The same bytes for the same content: no name, no time.
std::string Gzip(std::string_view content, int level = 6);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_GZIP_H_
