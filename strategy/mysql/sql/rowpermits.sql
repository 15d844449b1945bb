-- rowpermits(1 values): rows that are no claims yet. What is there already stays as it is.
INSERT INTO {permits} (hash, claim, forget) VALUES %[1]s ON DUPLICATE KEY UPDATE era = era
