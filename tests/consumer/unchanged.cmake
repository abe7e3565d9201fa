# A parent project's settings before and after it takes normans in.
set(watched_variables CMAKE_CXX_FLAGS CMAKE_CXX_STANDARD CMAKE_CXX_EXTENSIONS CMAKE_BUILD_TYPE
    CMAKE_CUDA_ARCHITECTURES CMAKE_CUDA_COMPILER CMAKE_CUDA_FLAGS CMAKE_CUDA_STANDARD
    CMAKE_CUDA_RUNTIME_LIBRARY CMAKE_RUNTIME_OUTPUT_DIRECTORY BUILD_TESTING
    CMAKE_POSITION_INDEPENDENT_CODE CMAKE_EXPORT_COMPILE_COMMANDS)
set(watched_properties COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES LINK_OPTIONS TESTS)

function(parent_settings out)
    set(all "")
    foreach(name ${watched_variables})
        string(APPEND all "${name}=${${name}}\n")
    endforeach()
    foreach(name ${watched_properties})
        get_directory_property(value ${name})
        string(APPEND all "${name}=${value}\n")
    endforeach()
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    string(APPEND all "languages=${languages}\n")
    set(${out} "${all}" PARENT_SCOPE)
endfunction()

function(check_unchanged before)
    parent_settings(after)
    if(NOT after STREQUAL before)
        message(FATAL_ERROR "normans changed its parent's settings:\n${before}\nto\n${after}")
    endif()
endfunction()

# Nothing but the library itself: no tests, examples or benchmarks.
function(check_only_the_library folder)
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    get_property(tests DIRECTORY ${folder} PROPERTY TESTS)
    if(NOT targets STREQUAL "normans" OR folders OR tests)
        message(FATAL_ERROR "more than a library: ${targets}; ${folders}; ${tests}")
    endif()
    get_target_property(options normans INTERFACE_COMPILE_OPTIONS)
    get_target_property(definitions normans INTERFACE_COMPILE_DEFINITIONS)
    if(options OR definitions)
        message(FATAL_ERROR "the target adds flags: ${options}; ${definitions}")
    endif()
endfunction()
