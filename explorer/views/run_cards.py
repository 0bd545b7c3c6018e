from markupsafe import Markup

MOST = 6


def run_cards(rows, *, database, runs, here, look):
    return Markup("<p>{} cards</p>").format(len(rows))
