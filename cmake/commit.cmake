# Writes the commit of the checkout into a header, unless the header says it already, so that nothing is built anew:
#   cmake -DSOURCE=... -DHEADER=... [-DGIVEN=...] -P cmake/commit.cmake
# GIVEN (the cache variable TRAINYARD_COMMIT) is for whoever builds outside of a checkout, such as in an image.
set(commit "${GIVEN}")
if(NOT commit)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH "${SOURCE}" source)
  if(top STREQUAL source)  # and not the checkout of something around it
    execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=12
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT commit)
  set(commit unknown)
endif()
set(text "#define TRAINYARD_COMMIT \"${commit}\"\n")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${HEADER} "${text}")
endif()
