# Configures, builds and runs the project in SOURCE (one of the folders here) outside this build.
# INSTALL: install normans first and find it there, WANTED being the version asked for. REFUSED: the
# configuration must fail for the version's sake.
file(REMOVE_RECURSE ${PLACE})
file(MAKE_DIRECTORY ${PLACE})

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE outcome OUTPUT_VARIABLE output
        ERROR_VARIABLE output)
    if(NOT outcome EQUAL 0)
        message(FATAL_ERROR "failed: ${ARGN}\n${output}")
    endif()
endfunction()

set(options -DCMAKE_CXX_COMPILER=${COMPILER} -G ${GENERATOR})
if(INSTALL)
    run(${CMAKE_COMMAND} -S ${NORMANS_SOURCE} -B ${PLACE}/normans ${options} -DNORMANS_TESTS=OFF
        -DNORMANS_EXAMPLES=OFF -DNORMANS_DISPATCH=OFF -DCMAKE_INSTALL_PREFIX=${PLACE}/prefix)
    run(${CMAKE_COMMAND} --build ${PLACE}/normans --target install)
    file(GLOB_RECURSE here RELATIVE ${NORMANS_SOURCE}/include ${NORMANS_SOURCE}/include/*)
    file(GLOB_RECURSE there RELATIVE ${PLACE}/prefix/include ${PLACE}/prefix/include/*)
    if(NOT here STREQUAL there)
        message(FATAL_ERROR "other headers were installed: ${there}")
    endif()
    list(APPEND options -DCMAKE_PREFIX_PATH=${PLACE}/prefix -DNORMANS_WANTED=${WANTED})
else()
    list(APPEND options -DNORMANS_SOURCE=${NORMANS_SOURCE})
endif()

# What a parent has set stays as it is.
list(APPEND options "-DCMAKE_CXX_FLAGS=-DOF_THE_PARENT" -DCMAKE_BUILD_TYPE=Debug)
if(REFUSED)
    execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${PLACE}/build ${options}
        RESULT_VARIABLE outcome OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(outcome EQUAL 0 OR NOT output MATCHES "compatible with requested version")
        message(FATAL_ERROR "version ${WANTED} was not refused:\n${output}")
    endif()
    return()
endif()
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${PLACE}/build ${options})
run(${CMAKE_COMMAND} --build ${PLACE}/build)
run(${PLACE}/build/consumer)
