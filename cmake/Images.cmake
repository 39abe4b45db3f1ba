# What images are read with. libdeflate as an archive: nothing else of a trainer's image needs it. Of libspng Debian has
# the shared library alone.
find_library(archive_deflate libdeflate.a REQUIRED)
pkg_check_modules(SPNG REQUIRED IMPORTED_TARGET spng)
add_library(images INTERFACE)
target_link_libraries(images INTERFACE ${archive_deflate} PkgConfig::SPNG ZLIB::ZLIB)
