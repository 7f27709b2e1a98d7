# The libraries ddptrain uses, as targets ddp_dep::<name>. What is missing is named in one line, by Debian's names.

find_package(PkgConfig QUIET)
if(NOT PKG_CONFIG_FOUND)
    message(FATAL_ERROR " pkg-config is missing: apt-get install pkgconf")
endif()
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

set(ddp_missing)
set(ddp_missing_packages)

# ddp_require(<name> <pkg-config module> <Debian package>) makes ddp_dep::<name>. The module is remembered for
# ddptrain.pc and for the CMake package, which look for it again on the machine of whoever uses them.
macro(ddp_require name module package)
    pkg_check_modules(ddp_dep_${name} QUIET IMPORTED_TARGET GLOBAL ${module})
    if(ddp_dep_${name}_FOUND)
        add_library(ddp_dep::${name} INTERFACE IMPORTED GLOBAL)
        target_link_libraries(ddp_dep::${name} INTERFACE PkgConfig::ddp_dep_${name})
        set_property(GLOBAL PROPERTY DDP_DEP_MODULE_${name} ${module})
    else()
        list(APPEND ddp_missing ${module})
        list(APPEND ddp_missing_packages ${package})
    endif()
endmacro()

ddp_require(mpi ompi-c libopenmpi-dev)
ddp_require(cyaml libcyaml libcyaml-dev)
ddp_require(yaml yaml-0.1 libyaml-dev) # libcyaml.pc asks for it, Debian's libcyaml-dev does not bring it
ddp_require(cjson libcjson libcjson-dev)
ddp_require(xxhash libxxhash libxxhash-dev)
ddp_require(zlib zlib zlib1g-dev)
ddp_require(pcre2 libpcre2-8 libpcre2-dev)
ddp_require(hwloc hwloc libhwloc-dev)
ddp_require(hdf5 hdf5-serial libhdf5-dev)
if(DDP_BUILD_TESTS)
    ddp_require(check check check)
    # OpenBLAS is a test oracle only; the serial build: one rank, one core.
    find_library(DDP_OPENBLAS NAMES openblas PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial NO_DEFAULT_PATH)
    find_path(DDP_OPENBLAS_INCLUDE cblas.h PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial NO_DEFAULT_PATH)
    if(DDP_OPENBLAS AND DDP_OPENBLAS_INCLUDE)
        add_library(ddp_dep::openblas INTERFACE IMPORTED GLOBAL)
        target_include_directories(ddp_dep::openblas INTERFACE ${DDP_OPENBLAS_INCLUDE})
        target_link_libraries(ddp_dep::openblas INTERFACE ${DDP_OPENBLAS})
    else()
        list(APPEND ddp_missing openblas-serial)
        list(APPEND ddp_missing_packages libopenblas-serial-dev)
    endif()
endif()

if(ddp_missing)
    list(JOIN ddp_missing ", " ddp_missing)
    list(JOIN ddp_missing_packages " " ddp_missing_packages)
    # The blank in front keeps CMake from breaking the line.
    message(FATAL_ERROR " missing: ${ddp_missing}; to install: apt-get install ${ddp_missing_packages}")
endif()
