# Warnings and sanitizers for every target of the project, and how a folder becomes a library.

add_library(ddp_options INTERFACE)
target_compile_options(ddp_options INTERFACE
    -Wall -Wextra -Wvla
    # C++ is only in tests, kernels of CUDA among it: nvcc says nothing of conversions, and in C++ a function may not
    # have the name of a struct without hiding something.
    $<$<COMPILE_LANGUAGE:C>:-Wshadow> $<$<COMPILE_LANGUAGE:C>:-Wconversion> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    # gcc alone has this warning, and cutting a text that is too long is what we want.
    $<$<OR:$<C_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:CXX>>:-Wno-format-truncation>
    # -std=c11 alone switches contraction off; the same on every path, or bits differ between them.
    -ffp-contract=fast -fno-math-errno -fno-trapping-math)
# Linux is the platform: memfd_create, pidfd_open, madvise.
target_compile_definitions(ddp_options INTERFACE _GNU_SOURCE)
if(DDP_WERROR)
    target_compile_options(ddp_options INTERFACE -Werror)
endif()
if(DDP_SANITIZE)
    # DDP_PLAIN: a target that is not to be watched.
    target_compile_options(ddp_options INTERFACE $<$<NOT:$<BOOL:$<TARGET_PROPERTY:DDP_PLAIN>>>:-fsanitize=${DDP_SANITIZE}>
        -fno-omit-frame-pointer $<$<NOT:$<BOOL:$<TARGET_PROPERTY:DDP_PLAIN>>>:-fno-sanitize-recover=all>)
    target_link_options(ddp_options INTERFACE -fsanitize=${DDP_SANITIZE})
endif()

# ddp_add_library(<folder> HEADERS h... SOURCES c... DEPENDS target...) makes ddptrain::<folder>, lib ddptrain_<folder>.
function(ddp_add_library folder)
    cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
    add_library(ddptrain_${folder} STATIC ${ARG_SOURCES})
    add_library(ddptrain::${folder} ALIAS ddptrain_${folder})
    list(TRANSFORM ARG_HEADERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    target_sources(ddptrain_${folder} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
    target_link_libraries(ddptrain_${folder} PUBLIC ${ARG_DEPENDS}
        PRIVATE ${ARG_PRIVATE_DEPENDS} $<BUILD_INTERFACE:ddp_options>)
    set_target_properties(ddptrain_${folder} PROPERTIES EXPORT_NAME ${folder})
    set_property(GLOBAL APPEND PROPERTY DDP_LIBRARIES ddptrain_${folder})
endfunction()
