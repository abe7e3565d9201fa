# SOURCE must compile with VALID defined, and without it must not, with the message that its line
# "// expect: REGEX" says. "// alter: FILE | FROM | TO" means: with a copy of the headers in which
# one text is replaced.
file(READ ${SOURCE} text)
if(NOT text MATCHES "// expect: ([^\n]+)")
    message(FATAL_ERROR "${SOURCE} does not say what it expects")
endif()
set(expected "${CMAKE_MATCH_1}")
set(altered ${INCLUDE})
if(text MATCHES "// alter: ([^ ]+) \\| ([^|\n]+) \\| ([^\n]+)")
    set(header ${CMAKE_MATCH_1})
    set(from "${CMAKE_MATCH_2}")
    set(to "${CMAKE_MATCH_3}")
    set(altered ${PLACE})
    file(REMOVE_RECURSE ${PLACE})
    file(COPY ${INCLUDE}/normans DESTINATION ${PLACE})
    file(READ ${PLACE}/normans/${header} before)
    string(REPLACE "${from}" "${to}" after "${before}")
    if(after STREQUAL before)
        message(FATAL_ERROR "${header} has no \"${from}\"")
    endif()
    file(WRITE ${PLACE}/normans/${header} "${after}")
endif()

function(compile include outcome message)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C ${COMPILER} -std=c++17 -fsyntax-only
            -Werror=unused-result -Werror=narrowing
            -I${include} ${ARGN} ${SOURCE}
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    set(${outcome} ${result} PARENT_SCOPE)
    set(${message} "${output}" PARENT_SCOPE)
endfunction()

compile(${INCLUDE} outcome output -DVALID)
if(NOT outcome EQUAL 0)
    message(FATAL_ERROR "the valid form does not compile:\n${output}")
endif()
compile(${altered} outcome output)
if(outcome EQUAL 0)
    message(FATAL_ERROR "it compiles")
endif()
if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "the message is another one:\n${output}")
endif()
