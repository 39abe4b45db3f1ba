// NVIDIA's driver as far as trainer/hardware/gpus.cc asks it: FAKE_GPUS cards, "name:GiB:capability" each with commas
// in between, half of each free. Built as libcuda.so.1 and as libnvidia-ml.so.1.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Card {
  std::string name;
  unsigned long long bytes;
  int capability;
};

std::vector<Card> Cards() {
  const char* text = std::getenv("FAKE_GPUS");
  std::vector<Card> cards;
  std::istringstream list(text ? text : "");
  for (std::string part; std::getline(list, part, ',');) {
    std::istringstream fields(part);
    std::string name, size, capability;
    std::getline(fields, name, ':');
    std::getline(fields, size, ':');
    std::getline(fields, capability, ':');
    cards.push_back({name, std::stoull(size) << 30, std::stoi(capability)});
  }
  return cards;
}

constexpr char kFirst[] = "GPU-00000000-0000-0000-0000-0000000000";  // and two digits: the card's number

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int cuInit(unsigned) {
  const char* error = std::getenv("FAKE_DRIVER_FAILS");
  return error ? std::atoi(error) : 0;
}
__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(Cards().size());
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "%s", Cards()[static_cast<size_t>(device)].name.c_str());
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = Cards()[static_cast<size_t>(device)].bytes;
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int capability = Cards()[static_cast<size_t>(device)].capability;
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0, 16);
  uuid[15] = static_cast<unsigned char>(device);
  return 0;
}

__attribute__((visibility("default"))) int nvmlInit_v2() { return std::getenv("FAKE_NVML_FAILS") ? 999 : 0; }
__attribute__((visibility("default"))) int nvmlShutdown() { return 0; }
__attribute__((visibility("default"))) int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strncmp(uuid, kFirst, sizeof kFirst - 1) != 0) return 6;
  *device = reinterpret_cast<void*>(std::stoul(uuid + sizeof kFirst - 1, nullptr, 16) + 1);
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  const unsigned long long bytes = Cards()[reinterpret_cast<size_t>(device) - 1].bytes;
  total_free_used[0] = bytes;
  total_free_used[1] = total_free_used[2] = bytes / 2;
  return 0;
}

}  // extern "C"
