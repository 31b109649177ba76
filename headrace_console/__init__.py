"""`headrace console`: the JSON API and the pages by which a browser shows a cluster.

    http/      the server: sessions, checks of every request, routes to the screens
    screens/   what each screen shows and changes, as documents; no HTTP
    cluster/   the way to the brokers: bounded, with a word about who did not answer; the watcher
    records/   records for a browser: searched, cut and marked
    queries/   what Spark's queries have posted
    static/    the pages

Brokers import nothing of it. Source: R-CON1 to R-CON9.
"""
