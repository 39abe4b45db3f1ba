// NVIDIA's GPUs, asked of the driver itself: libcuda (CUDA Driver API) says what there is, libnvidia-ml (NVML) what is
// free, which libcuda tells only within a context, and that would take memory. Neither is there without a driver.
#include "trainer/hardware/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

namespace trainyard {
namespace {

// https://docs.nvidia.com/cuda/cuda-driver-api: the functions below, their types, and the numbers of two attributes.
using CuDevice = int;
struct CuUuid {
  std::array<unsigned char, 16> bytes;
};
constexpr int kNoDevice = 100;           // CUDA_ERROR_NO_DEVICE
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...

// https://docs.nvidia.com/deploy/nvml-api: nvmlMemory_t.
struct NvmlMemory {
  unsigned long long total, free, used;
};

// Stays open: a driver does not bear to be closed.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  bool is_open() const { return handle_ != nullptr; }
  // Null where it is not there.
  template <class Function>
  Function* Find(const char* name) const {
    return handle_ ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
  }

 private:
  void* handle_;
};

class Driver {
 public:
  // `uuids`: theirs, by which NVML knows them.
  SeenGpus Gpus(std::vector<std::string>& uuids) const {
    if (!library_.is_open()) return {};
    if (!init_ || !count_ || !get_ || !name_ || !total_ || !attribute_ || !uuid_)
      return {{}, "libcuda.so.1 lacks functions of CUDA's driver"};
    int count = 0, error = init_(0);
    if (error == kNoDevice) return {};
    if (error != 0) return {{}, "cuInit: error " + std::to_string(error)};
    error = count_(&count);
    if (error != 0) return {{}, "cuDeviceGetCount: error " + std::to_string(error)};
    SeenGpus seen;
    for (int i = 0; i < count; ++i) {
      Gpu gpu;
      if (!Ask(i, gpu, uuids)) return {{}, "GPU " + std::to_string(i) + " does not say what it is"};
      seen.gpus.push_back(std::move(gpu));
    }
    return seen;
  }

 private:
  bool Ask(int index, Gpu& gpu, std::vector<std::string>& uuids) const {
    CuDevice device = 0;
    std::array<char, 256> name{};
    size_t total = 0;
    CuUuid uuid{};
    if (get_(&device, index) != 0 || name_(name.data(), name.size() - 1, device) != 0 || total_(&total, device) != 0 ||
        attribute_(&gpu.major, kMajor, device) != 0 || attribute_(&gpu.minor, kMinor, device) != 0 ||
        uuid_(&uuid, device) != 0)
      return false;
    gpu.name = name.data();
    gpu.total_bytes = total;
    uuids.push_back(TextOf(uuid));
    return true;
  }

  // As NVML names it: GPU-8c1f... (of a slice of one, MIG-...).
  static std::string TextOf(const CuUuid& uuid) {
    std::string text = "GPU-";
    for (size_t i = 0; i < uuid.bytes.size(); ++i) {
      std::array<char, 4> byte{};
      std::snprintf(byte.data(), byte.size(), "%02x", uuid.bytes[i]);
      text += byte.data();
      if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
    }
    return text;
  }

  const Library library_{"libcuda.so.1"};
  int (*const init_)(unsigned) = library_.Find<int(unsigned)>("cuInit");
  int (*const count_)(int*) = library_.Find<int(int*)>("cuDeviceGetCount");
  int (*const get_)(CuDevice*, int) = library_.Find<int(CuDevice*, int)>("cuDeviceGet");
  int (*const name_)(char*, int, CuDevice) = library_.Find<int(char*, int, CuDevice)>("cuDeviceGetName");
  int (*const total_)(size_t*, CuDevice) = library_.Find<int(size_t*, CuDevice)>("cuDeviceTotalMem_v2");
  int (*const attribute_)(int*, int, CuDevice) = library_.Find<int(int*, int, CuDevice)>("cuDeviceGetAttribute");
  int (*const uuid_)(CuUuid*, CuDevice) = library_.Find<int(CuUuid*, CuDevice)>("cuDeviceGetUuid_v2");
};

class Management {
 public:
  // Leaves what it cannot find out.
  void SetFree(std::vector<Gpu>& gpus, const std::vector<std::string>& uuids) const {
    if (!init_ || !find_ || !memory_ || !shutdown_ || init_() != 0) return;
    for (size_t i = 0; i < gpus.size(); ++i) {
      void* device = nullptr;
      NvmlMemory memory{};
      if (find_(uuids[i].c_str(), &device) != 0 && find_(("MIG" + uuids[i].substr(3)).c_str(), &device) != 0) continue;
      if (memory_(device, &memory) == 0) gpus[i].free_bytes = std::min<uint64_t>(memory.free, gpus[i].total_bytes);
    }
    shutdown_();
  }

 private:
  const Library library_{"libnvidia-ml.so.1"};
  int (*const init_)() = library_.Find<int()>("nvmlInit_v2");
  int (*const shutdown_)() = library_.Find<int()>("nvmlShutdown");
  int (*const find_)(const char*, void**) = library_.Find<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
  int (*const memory_)(void*, NvmlMemory*) = library_.Find<int(void*, NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
};

}  // namespace

SeenGpus VisibleGpus() {
  static const Driver driver;
  std::vector<std::string> uuids;
  SeenGpus seen = driver.Gpus(uuids);
  if (seen.gpus.empty()) return seen;
  static const Management management;
  management.SetFree(seen.gpus, uuids);
  return seen;
}

}  // namespace trainyard
