# The plug-in for NVIDIA's GPUs is built where cmake/deps.sh has brought the compiler; nothing of the programs links it.
# Torch::Cuda is libtorch_cuda and what the plug-in compiles against.
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/cmake/deps.sh --cuda-prefix
  OUTPUT_VARIABLE CUDA_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CUDA_TOOLKIT ${CUDA_PREFIX}/cu13)
set(with_cuda OFF)
if(EXISTS ${CUDA_TOOLKIT}/bin/nvcc AND NOT TRAINYARD_SANITIZE)
  set(with_cuda ON)
endif()
option(TRAINYARD_WITH_CUDA "build libtrainyard_cuda.so" ${with_cuda})
if(NOT TRAINYARD_WITH_CUDA)
  message(STATUS "libtrainyard_cuda.so is not built: no compiler in ${CUDA_TOOLKIT}, or a sanitizer's build")
  return()
endif()

# What CMake links to see whether the compiler works is of no use here.
set(CMAKE_CUDA_COMPILER ${CUDA_TOOLKIT}/bin/nvcc)
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
enable_language(CUDA)

foreach(name torch_cuda c10_cuda)
  add_library(torch_${name} SHARED IMPORTED)
  set_target_properties(torch_${name} PROPERTIES IMPORTED_LOCATION ${TORCH_LIB}/lib${name}.so)
endforeach()
# NCCL and CUDA's runtime alone, for what needs no LibTorch.
add_library(Cuda::Nccl INTERFACE IMPORTED)
target_include_directories(Cuda::Nccl SYSTEM INTERFACE ${CUDA_TOOLKIT}/include ${CUDA_PREFIX}/nccl/include)
add_library(Torch::Cuda INTERFACE IMPORTED)
# Nothing names a symbol of libtorch_cuda: its operators come with its static initialisers. What it needs in turn is
# found when the plug-in is opened.
target_link_libraries(Torch::Cuda INTERFACE Cuda::Nccl Torch::Cpu
  -Wl,--no-as-needed torch_torch_cuda torch_c10_cuda -Wl,--as-needed
  ${CUDA_TOOLKIT}/lib/libcudart.so.13 ${CUDA_PREFIX}/nccl/lib/libnccl.so.2)
target_compile_definitions(Torch::Cuda INTERFACE USE_CUDA)
