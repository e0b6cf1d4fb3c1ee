# Compiler flags, output folders and the two target helpers every folder uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(FARGPU_CLIENT_LIBDIR "${CMAKE_BINARY_DIR}/lib/fargpu")
# Where installed programs find our libraries: seen from their own folder.
include(GNUInstallDirs)
file(RELATIVE_PATH FARGPU_LIBRARY_FOLDER "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}/fargpu")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # what it asks for where headers are precompiled (FargpuPrelude)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

add_library(fargpu_options INTERFACE)
target_include_directories(fargpu_options INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(fargpu_options INTERFACE -Wall -Wextra -Wno-unused-parameter -fno-strict-aliasing)
if(FARGPU_WERROR)
  target_compile_options(fargpu_options INTERFACE -Werror)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(fargpu_options INTERFACE -fstack-protector-strong)
  target_compile_definitions(fargpu_options INTERFACE _FORTIFY_SOURCE=2)
  target_link_options(fargpu_options INTERFACE -Wl,-z,relro,-z,now)
endif()
# Release builds optimise what lies below every call across its files. fargpu_hot() marks a library
# of that kind, whose objects then carry both ordinary code and what the linker needs;
# fargpu_link_hot() marks what is linked that way: the programs that make or answer calls.
# Everything else links the ordinary code, which is quicker.
if(FARGPU_LTO AND CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_link_options(fargpu_options INTERFACE "$<IF:$<BOOL:$<TARGET_PROPERTY:FARGPU_LINK_HOT>>,-flto=auto,-fno-lto>")
  function(fargpu_hot)
    foreach(name IN LISTS ARGN)
      target_compile_options(${name} PRIVATE -flto -ffat-lto-objects -fno-plt)
    endforeach()
  endfunction()
  function(fargpu_link_hot)
    set_target_properties(${ARGN} PROPERTIES FARGPU_LINK_HOT ON)
  endfunction()
else()
  function(fargpu_hot)
  endfunction()
  function(fargpu_link_hot)
  endfunction()
endif()
if(FARGPU_SANITIZE)
  # Sanitized builds: assertions stay on, and little optimisation and line tables only, which
  # compile in half the time.
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  target_compile_definitions(fargpu_options INTERFACE _GLIBCXX_ASSERTIONS)
  # g++ cannot see through a sanitizer's checks that the value of an empty std::optional is not
  # used.
  target_compile_options(fargpu_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(FARGPU_SANITIZE STREQUAL "address")
  target_compile_options(fargpu_options INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=undefined)
  target_link_options(fargpu_options INTERFACE -fsanitize=address,undefined)
elseif(FARGPU_SANITIZE STREQUAL "thread")
  target_compile_options(fargpu_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(fargpu_options INTERFACE -fsanitize=thread)
elseif(FARGPU_SANITIZE)
  message(FATAL_ERROR "FARGPU_SANITIZE must be empty, address or thread, not '${FARGPU_SANITIZE}'")
endif()

# For code that C programs call, and for what serves them: they may pass any number as an enum, and
# it is refused where it is looked at. g++ would report every load of such a value. (A library of
# its own: its flag must stand behind those of fargpu_options.)
add_library(fargpu_any_enum INTERFACE)
if(FARGPU_SANITIZE STREQUAL "address")
  target_compile_options(fargpu_any_enum INTERFACE -fno-sanitize=enum)
endif()
if(FARGPU_FUZZ)
  # All code, not only the targets: a fuzzer is led by the branches that its inputs take in the
  # libraries.
  target_compile_options(fargpu_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=undefined)
  target_link_options(fargpu_options INTERFACE -fsanitize=address,undefined)
endif()

# Several sources of a target at a time (FARGPU_UNITY): the headers that they share are read once,
# which is two thirds of what a compiler does here. Names in the anonymous namespaces of a target
# must then differ; fargpu_compile_alone(source...) is for sources where they do not.
set(CMAKE_UNITY_BUILD ${FARGPU_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
function(fargpu_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# fargpu_compile_quickly(TARGET...): for code of which nobody waits for a microsecond, as options of
# a command line, pages, the daemon and management queries. Release builds optimise it less, which
# takes a third less processor time. Not for what is linked into a library or program with code that
# is fast: inline functions have one copy there, perhaps this one.
function(fargpu_compile_quickly)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

# fargpu_library(NAME source...): a static library with the house flags.
function(fargpu_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC fargpu_options)
endfunction()

# fargpu_executable(NAME source...): a program in build/<preset>/bin with the house flags.
function(fargpu_executable name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE fargpu_options)
  if(FARGPU_STATIC_DEPS AND NOT FARGPU_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# fargpu_add_test(NAME LABEL TIMEOUT program [argument...]): add_test for a target or a command.
# Under a sanitizer the test also fails when a process that it started (a daemon, a worker, an
# application) wrote a report.
function(fargpu_add_test name label timeout program)
  if(TARGET ${program})
    set(program "$<TARGET_FILE:${program}>")
  endif()
  set(launcher)
  if(FARGPU_SANITIZE)
    set(launcher "${FARGPU_PYTHON}" -B "${CMAKE_SOURCE_DIR}/tests/support/sanitized.py" ${FARGPU_SANITIZE} "${CMAKE_BINARY_DIR}/reports/${name}")
  endif()
  add_test(NAME ${name} COMMAND ${launcher} "${program}" ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${timeout})
endfunction()

# fargpu_test(NAME LABEL source...): a GoogleTest program, registered with ctest under LABEL.
function(fargpu_test name label)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE fargpu_options GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  fargpu_add_test(${name} ${label} 300 ${name})
endfunction()
