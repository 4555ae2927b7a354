-- State as schema version 5 stored it: of no principal, and of bob.

INSERT INTO sessions VALUES ('s-1', 'One', '0::', NULL, 0, 1, 253402300799999);
INSERT INTO sessions VALUES ('s-2', 'Two', '0::bob', NULL, 0, 2, 253402300799999);
INSERT INTO session_handles VALUES ('0::', 'default', 'it', 's-1');
INSERT INTO session_handles VALUES ('0::bob', 'default', 'it', 's-2');
INSERT INTO outputs VALUES ('session-1/a', 'session-1', '0::', 't', 'text/plain', 1, 1, 253402300799999, x'61');
INSERT INTO outputs VALUES ('session-2/b', 'session-2', '0::bob', 't', 'text/plain', 1, 2, 253402300799999, x'62');
INSERT INTO log_segments VALUES (
    1,
    'call',
    3,
    253402300799999,
    3,
    200,
    '["c1","session-1","0::","t",null,1,1,2]
["c",null,null,"\"0::\"\n",null,2,1,2]
["c2","session-2","0::bob",null,null,3,1,2]
',
    '{}{}{}'
);
INSERT INTO log_segments VALUES (
    2,
    'trace',
    2,
    253402300799999,
    2,
    200,
    '{"workspace":"w","session":"s-1","kind":"tool_call","content":"of someone","timestamp":1,"body":2}
{"workspace":"w","session":"s-2","kind":"tool_call","content":"of bob","timestamp":2,"body":2}
',
    '{}{}'
);
INSERT INTO tallies VALUES ('log', 'call', 3, 200), ('log', 'trace', 2, 200);
