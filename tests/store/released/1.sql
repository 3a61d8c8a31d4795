PRAGMA application_id = 1164991024;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE history (         -- the architecture that a run evaluated in each step
    run INTEGER NOT NULL REFERENCES runs,
    step INTEGER NOT NULL,
    setting INTEGER NOT NULL,
    proxy INTEGER NOT NULL,
    arch TEXT NOT NULL,
    PRIMARY KEY (run, step, setting, proxy),
    FOREIGN KEY (setting, proxy, arch) REFERENCES scores
) WITHOUT ROWID;
INSERT INTO "history" VALUES(1,0,1,1,'a');
INSERT INTO "history" VALUES(1,0,1,2,'a');
INSERT INTO "history" VALUES(1,1,1,1,'ünïcode');
INSERT INTO "history" VALUES(1,1,1,2,'ünïcode');
CREATE TABLE proxies (         -- the proxy's name with its own settings, e.g. dextr(points=4)
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);
INSERT INTO "proxies" VALUES(1,'dextr');
INSERT INTO "proxies" VALUES(2,'naswot');
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,      -- a hash of kind and settings
    kind TEXT NOT NULL,
    settings TEXT NOT NULL,       -- JSON, as are the columns below
    manifest TEXT NOT NULL,
    resumed TEXT NOT NULL,
    result TEXT                   -- NULL until the run is finished
);
INSERT INTO "runs" VALUES(1,'0594cbd785a7a8d9','search','{"space": "nb201", "seed": 0}','{"started": "2026-11-19T00:00:00+00:00"}','["2026-11-19T00:01:00+00:00"]','{"best": "a"}');
CREATE TABLE scores (
    setting INTEGER NOT NULL REFERENCES settings,
    proxy INTEGER NOT NULL REFERENCES proxies,
    arch TEXT NOT NULL,
    value,                        -- NULL unless ok; untyped, because a REAL column turns -0.0 into 0.0
    status TEXT NOT NULL CHECK (status IN ('ok', 'degenerate', 'failed')),
    why TEXT NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (setting, proxy, arch),
    CONSTRAINT a_number_if_and_only_if_ok
        CHECK (typeof(value) = CASE status WHEN 'ok' THEN 'real' ELSE 'null' END)
) WITHOUT ROWID;
INSERT INTO "scores" VALUES(1,1,'a',1.5,'ok','',0.25);
INSERT INTO "scores" VALUES(1,1,'ünïcode',-0.0,'ok','',0.5);
INSERT INTO "scores" VALUES(1,2,'a',NULL,'degenerate','det K = 0',0.25);
INSERT INTO "scores" VALUES(1,2,'ünïcode',9e999,'ok','',0.5);
CREATE TABLE settings (        -- dependencies of a score other than architecture and proxy
    id INTEGER PRIMARY KEY,
    space TEXT NOT NULL,
    batch TEXT NOT NULL,
    origin TEXT NOT NULL,
    UNIQUE (space, batch, origin)
);
INSERT INTO "settings" VALUES(1,'nb201','pink-s0-1','default:0');
CREATE TABLE states (  -- state of a run that cannot be replayed; created when needed
    run INTEGER PRIMARY KEY REFERENCES runs,
    state TEXT NOT NULL           -- JSON
);
INSERT INTO "states" VALUES(1,'{"generation": 3}');
CREATE VIEW all_scores AS
SELECT space, arch, name AS proxy, batch, origin, value, status, why, seconds
FROM settings CROSS JOIN proxies CROSS JOIN scores
ON scores.setting = settings.id AND scores.proxy = proxies.id;
CREATE VIEW all_history AS
SELECT runs.id AS run, step, space, batch, origin, arch, name AS proxy, value, status, why, seconds
FROM history
JOIN runs ON runs.number = history.run
JOIN settings ON settings.id = history.setting
JOIN proxies ON proxies.id = history.proxy
JOIN scores USING (setting, proxy, arch);
COMMIT;
