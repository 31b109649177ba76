"""`headrace console`: the JSON API and the pages by which a browser shows a cluster.

    http/      the server: sessions, checks of every request, routes to the screens
    screens/   what each screen shows and changes, as documents; no HTTP
    cluster/   access to the brokers: bounded, with the reasons of silent ones; the watcher
    records/   records for a browser: searched, cut and marked
    queries/   the progress that Spark's queries have posted
    static/    the pages

Brokers do not import it. Source: R-CON1 to R-CON9.
"""
